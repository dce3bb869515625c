package lint

import "testing"

// TestChain: the corrected line has both commands.
func TestChain(t *testing.T) {
	mask := Step{Do: Set, Name: "CUDA_VISIBLE_DEVICES", Value: Value{Text: "1", Raw: "1", Known: true}, At: Place{Line: 1, Column: 1}}
	for _, c := range []struct{ first, join, second, want string }{
		{"cd project", "&&", "python train.py", "cd project && CUDA_VISIBLE_DEVICES=1 python train.py"},
		{"cat prompts", "|", "python train.py", "cat prompts | CUDA_VISIBLE_DEVICES=1 python train.py"},
		{"sleep 1", "", "python train.py", "sleep 1; CUDA_VISIBLE_DEVICES=1 python train.py"},
		{"python train.py", "&&", "python eval.py", "CUDA_VISIBLE_DEVICES=1 python train.py && CUDA_VISIBLE_DEVICES=1 python eval.py"},
	} {
		first, second := command(c.first), command(c.second)
		first.With, second.Join = []Step{mask}, c.join
		found := lookPrefix(indexVariables(File{Kind: Shell, Steps: []Step{first, second}}), 1, second)
		if len(found) != 1 || found[0].Line != c.want {
			t.Errorf("%+v, want %s", found, c.want)
		}
	}
}

// TestGPUsForRange: docker gets no range.
func TestGPUsForRange(t *testing.T) {
	for list, want := range map[string]string{"0-1": "name each device: --gpus '\"device=2,3\"' for the third and the fourth", "3": "write: --gpus device=3", "2,3": "write: --gpus '\"device=2,3\"'"} {
		found := inContainer(lookBesideMask)(indexedFile{}, 0, command("docker run --gpus all -e NVIDIA_VISIBLE_DEVICES="+list+" image"))
		if len(found) != 1 || found[0].Do != want {
			t.Errorf("%s: %+v", list, found)
		}
	}
}
