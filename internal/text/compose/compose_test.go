package compose

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpuard/test/steps"
)

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      []string
	}{
		{"map", "services:\n  web:\n    environment:\n      CUDA_VISIBLE_DEVICES: 0,1\n      A: \"2\"\n      B:\n      C: $$x\n      D: ${GPU:-0}\n", []string{
			`4:7 set CUDA_VISIBLE_DEVICES environment in web ="0,1"`,
			`5:7 set A environment in web ="2"@"\"2\""`,
			`6:7 set B environment in web ?""`,
			`7:7 set C environment in web ="$x"@"$$x"`,
			`8:7 set D environment in web ?"${GPU:-0}"`,
		}},
		{"list", "services:\n  web:\n    environment:\n      - CUDA_VISIBLE_DEVICES=0,1\n      - \"A=2\"\n      - B\n      - C=\"0\"\n", []string{
			`4:9 set CUDA_VISIBLE_DEVICES environment in web ="0,1"`,
			`5:9 set A environment in web ="2"`,
			`6:9 set B environment in web ?""@"B"`,
			`7:9 set C environment in web ="\"0\""`,
		}},
		{"cut map", "services: {web: {environment: {CUDA_VISIBLE_DEVICES: 0,1}}}\n", []string{
			`1:32 set CUDA_VISIBLE_DEVICES environment in web ="0"`,
			`1:56 set 1 environment, cut in web ?""`,
		}},
		{"cut list", "services:\n  web:\n    environment: [CUDA_VISIBLE_DEVICES=0,1]\n", []string{
			`3:19 set CUDA_VISIBLE_DEVICES environment in web ="0"`,
			`3:42 set 1 environment, cut in web ?""@"1"`,
		}},
		{"devices", "services:\n  web:\n    image: a\n    deploy:\n      resources:\n        reservations:\n          devices:\n            - driver: nvidia\n              device_ids: ['0', \"3\"]\n              capabilities: [gpu]\n", []string{
			`3:5 setting services.web.image in web ="a"`,
			`8:15 setting services.web.deploy.resources.reservations.devices[0] in web ?""`,
			`8:15 setting services.web.deploy.resources.reservations.devices[0].driver in web ="nvidia"`,
			`9:28 setting services.web.deploy.resources.reservations.devices[0].device_ids[0] in web ="0"@"'0'"`,
			`9:33 setting services.web.deploy.resources.reservations.devices[0].device_ids[1] in web ="3"@"\"3\""`,
			`10:30 setting services.web.deploy.resources.reservations.devices[0].capabilities[0] in web ="gpu"`,
		}},
		{"anchor", "x-gpu: &gpu\n  runtime: nvidia\n  environment: &env\n    A: 1\nservices:\n  web:\n    <<: *gpu\n  two:\n    environment:\n      <<: *env\n      B: 2\n", []string{
			`4:5 set A environment in web ="1"`,
			`2:3 setting services.web.runtime in web ="nvidia"`,
			`11:7 set B environment in two ="2"`,
			`4:5 set A environment in two ="1"`,
		}},
		{"commands", "services:\n  web:\n    command: python train.py --x 'a b' \"$$HOME\" ${Y}\n  two:\n    entrypoint: [\"python\", '-u']\n    command:\n      - train.py\n  three:\n    entrypoint: torchrun\n    command: --nproc_per_node 2 x.py\n", []string{
			`3:14 command in web ="python" ="train.py" ="--x" ="a b"@"'a b'" ="$HOME"@"\"$$HOME\"" ?"${Y}"`,
			`5:18 command in two ="python"@"\"python\"" ="-u"@"'-u'"`,
			`7:9 command in two ="train.py"`,
			`9:17 command in three ="torchrun" ="--nproc_per_node" ="2" ="x.py"`,
		}},
		{"shell", "services:\n  web:\n    command: sh -c \"export A=1\"\n  two:\n    entrypoint: [bash, -lc]\n    command: [\"A=1 b\"]\n  three:\n    command: >\n      python a.py\n      --x 1\n    healthcheck:\n      test: [CMD-SHELL, nvidia-smi || exit 1]\n", []string{
			`3:14 command in web ="sh" ="-c" ="export A=1"@"\"export A=1\""`,
			`3:21 script in web indent 0 ="export A=1"@"\"export A=1\""`,
			`5:18 command in two ="bash" ="-lc" ="A=1 b"@"\"A=1 b\""`,
			`6:16 script in two indent 0 ="A=1 b"@"\"A=1 b\""`,
			`9:7 command in three ="python" ="a.py" ="--x" ="1"`,
			`12:25 script in three indent 0 ="nvidia-smi || exit 1"`,
		}},
		{"vllm", "services:\n  llm:\n    image: vllm/vllm-openai:latest\n    command: --gpu-memory-utilization 0.9\n", []string{
			`3:5 setting services.llm.image in llm ="vllm/vllm-openai:latest"`,
			`3:12 command in llm ="vllm"@"vllm/vllm-openai:latest" ="serve"@"vllm/vllm-openai:latest" ="--gpu-memory-utilization" ="0.9"`,
		}},
		{"odd", "services:\n  web:\n  two: 5\n  three:\n    environment: 5\n    command: 5\n    deploy:\n", []string{`6:14 command in three ="5"`}},
		{"no services", "a: b\n", nil},
	} {
		f, err := ReadSteps("compose.yaml", []byte(c.src))
		got := steps.RenderSteps(c.src, f)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// TestGrowth: aliases of aliases do not make a small file a large one.
func TestGrowth(t *testing.T) {
	src := "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := 1; i < 12; i++ {
		src += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), i-1)
	}
	if f, err := ReadSteps("compose.yaml", []byte(src+"services:\n  web:\n    devices: *a11\n  two:\n    devices: *a11\n")); err == nil {
		t.Errorf("%d steps and no error", len(f.Steps))
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("services:\n  web:\n    environment: {A: 0,1}\n    command: sh -c 'x y'\n    deploy: {resources: {reservations: {devices: [{count: 1}]}}}\n"))
	f.Add([]byte("services:\n  web:\n    command: >\n      a \\\n      b\n    entrypoint: \"x\n      'y'\"\n"))
	f.Add([]byte("services:\n  web:\n    command: >\n      a \\\n            entrypoint: \"x\n   "))
	f.Fuzz(func(t *testing.T, src []byte) {
		file, err := ReadSteps("compose.yaml", src)
		if err != nil {
			return
		}
		if astray := steps.FindAstray(string(src), file); astray != "" {
			t.Fatal(astray)
		}
	})
}
