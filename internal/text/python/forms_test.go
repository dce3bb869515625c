package python_test

import (
	"strings"
	"testing"

	"gpuard/internal/gate"
	"gpuard/internal/text/python"
)

// TestForms: what is known of a value that is computed, or that is no text.
func TestForms(t *testing.T) {
	gate.Need(t, "python3")
	const options = "import os, argparse\np = argparse.ArgumentParser()\np.add_argument('--gpu', type=int)\np.add_argument('--ids', nargs='+')\n" +
		"p.add_argument('--name')\np.add_argument('--set', type=int)\nargs = p.parse_args()\nargs.set = str(args.set)\n"
	cases := []struct{ text, form, kind string }{
		{"os.environ['A'] = f'0-{n - 1}'", "0-{}", ""},
		{"os.environ['A'] = '0-' + str(n)", "0-{}", ""},
		{"os.environ['A'] = 'cuda:%d' % n", "cuda:{}", ""},
		{"os.environ['A'] = '{}-{}'.format(a, b)", "{}-{}", ""},
		{"os.environ['A'] = ' '.join(map(str, x))", "{} {}", ""},
		{"os.environ['A'] = ','.join('cuda:%d' % i for i in x)", "cuda:{}", ""},
		{"d = f'cuda:{n}'\nos.environ['CUDA_VISIBLE_DEVICES'] = d", "cuda:{}", ""},
		{"os.environ['A'] = str(args.ids)", "[{}]", ""},
		{"x = [0, 1]\nos.environ['A'] = str(x)", "[0, 1]", ""},
		{"x = [0]\nx.append(1)\nos.environ['A'] = ','.join(x)", "','.join(x)", ""},
		{"x = [0]\nx[0] = 2\nos.environ['A'] = str(x)", "[{}]", ""},
		{"os.environ['A'] = args.gpu", "args.gpu", "int"},
		{"os.environ['A'] = args.ids", "args.ids", "list"},
		{"os.environ['A'] = args.name", "args.name", ""},
		{"os.environ['A'] = args.set", "args.set", ""},
		{"os.environ['A'] = len(x) - 1", "len(x) - 1", "int"},
		{"for i in range(4):\n    os.environ['A'] = i", "i", "int"},
		{"for i in range(4):\n    i = str(i)\n    os.environ['A'] = i", "i", ""},
		{"def f(i: int):\n    os.environ['A'] = i", "i", "int"},
		{"os.environ['A'] = None", "None", "None"},
	}
	var files []python.Source
	for _, c := range cases {
		files = append(files, script(options+c.text))
	}
	for i, read := range ask(t, "python3", files) {
		steps := read.File.Steps
		if len(read.Problems) > 0 || len(steps) == 0 {
			t.Errorf("%s: %v %v", cases[i].text, steps, read.Problems)
			continue
		}
		if last := steps[len(steps)-1]; last.Value.Text != cases[i].form || last.Type != cases[i].kind {
			t.Errorf("%s: %q of the type %q, want %q of the type %q", cases[i].text, last.Value.Text, last.Type, cases[i].form, cases[i].kind)
		}
	}
}

// TestTexts: assignments in a text for a shell are read where a program makes the text to be used, and nowhere else.
func TestTexts(t *testing.T) {
	gate.Need(t, "python3")
	for text, want := range map[string]string{
		"def f(n):\n    return f'export CUDA_VISIBLE_DEVICES=0-{n}'":                               "CUDA_VISIBLE_DEVICES=0-{}",
		"f.write('export CUDA_VISIBLE_DEVICES=all\\n')":                                            "CUDA_VISIBLE_DEVICES=all",
		"x = ['export CUDA_VISIBLE_DEVICES=%s' % n, 'python t.py']":                                "CUDA_VISIBLE_DEVICES={}",
		"c = f'cd {d} && CUDA_VISIBLE_DEVICES={g} python t.py'":                                    "CUDA_VISIBLE_DEVICES={}",
		"T = '#!/bin/sh\\nexport HIP_VISIBLE_DEVICES={g}\\n'\nfor g in x:\n    run(T.format(g=g))": "HIP_VISIBLE_DEVICES={}",
		"print(f'export CUDA_VISIBLE_DEVICES=0-{n}', file=f)":                                      "CUDA_VISIBLE_DEVICES=0-{}",
		"print(f'export CUDA_VISIBLE_DEVICES=0-{n}')":                                              "",
		"'''CUDA_VISIBLE_DEVICES=0-3 python t.py'''":                                               "",
		"raise ValueError(f'CUDA_VISIBLE_DEVICES=0-{n} python')":                                   "",
		"x = 'CUDA_VISIBLE_DEVICES=0-3 python t.py'":                                               "",
		"x = ['-e', f'NVIDIA_VISIBLE_DEVICES={n}']":                                                "",
		"p.add_argument('--g', help='export CUDA_VISIBLE_DEVICES=0-3')":                            "",
	} {
		var got []string
		for _, s := range ask(t, "python3", []python.Source{script(text)})[0].File.Steps {
			for _, w := range s.With {
				got = append(got, w.Name+"="+w.Value.Text)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s\n got %q\nwant %q", text, got, want)
		}
	}
}
