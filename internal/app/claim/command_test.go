package claim

import "testing"

// TestListsInScript: a list that the text for a shell sets whatever happens, and what only looks like one.
func TestListsInScript(t *testing.T) {
	for script, want := range map[string]bool{
		"CUDA_VISIBLE_DEVICES=0 python x.py":                                  true,
		"cd /data && export CUDA_VISIBLE_DEVICES=0,1; python x.py":            true,
		"CUDA_VISIBLE_DEVICES= python tokenize.py && python x.py":             false,
		"CUDA_VISIBLE_DEVICES=$LOCAL_RANK python x.py":                        false,
		"CUDA_VISIBLE_DEVICES=GPU-$U python x.py":                             false,
		"echo CUDA_VISIBLE_DEVICES=0":                                         false,
		"grep CUDA_VISIBLE_DEVICES=0 run.log":                                 false,
		"# CUDA_VISIBLE_DEVICES=0 was wrong\npython x.py":                     false,
		"cat <<X\nCUDA_VISIBLE_DEVICES=0 python x.py\nX":                      false,
		"python x.py --env CUDA_VISIBLE_DEVICES=0":                            false,
		"docker run -e CUDA_VISIBLE_DEVICES=0 --gpus device=$GPUARD_GPUS img": false,
		"if test $1; then export CUDA_VISIBLE_DEVICES=0; fi; python x.py":     false,
		"if": false,
	} {
		found := listsInScript([]string{"nohup", "bash", "-lc", script})
		if (len(found) > 0) != want {
			t.Errorf("%s: %+v", script, found)
		}
	}
	for _, command := range [][]string{{"bash", "script.sh", "-c", "CUDA_VISIBLE_DEVICES=0 x"}, {"python", "-c", "CUDA_VISIBLE_DEVICES=0"}, {"bash"}, {}} {
		if found := listsInScript(command); found != nil {
			t.Errorf("%q: %+v", command, found)
		}
	}
}
