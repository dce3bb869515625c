package main

import (
	"strings"
	"testing"
)

// TestMaskRefusal: a refusal because of a mask says first what is wrong with the mask, and names a way around several only once.
func TestMaskRefusal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		machine string
		env     []string
		want    string
	}{
		{"demo", []string{"CUDA_VISIBLE_DEVICES=0,0"}, `correct CUDA_VISIBLE_DEVICES=0,0: GPU 0 is named twice (entry "0"), which empties the whole list (gpuard explain shows how it is read), or add --any`},
		{"demo:4xMI300X", []string{"ROCR_VISIBLE_DEVICES=0,,1"}, "correct ROCR_VISIBLE_DEVICES=0,,1: an empty entry ends the program"},
		{"demo:4xMI300X", []string{"ROCR_VISIBLE_DEVICES=1", "HIP_VISIBLE_DEVICES=1"}, "or add --any to look past ROCR_VISIBLE_DEVICES=1 and HIP_VISIBLE_DEVICES=1"},
		{"demo", []string{"CUDA_VISIBLE_DEVICES=-1"}, "gpuard: add --any to look past CUDA_VISIBLE_DEVICES=-1"},
	} {
		got := runCommand(t, gpuardCommand(t, stateFolder(t), c.env, "run", "--machine", c.machine, "--no-wait", "--", "true"))
		checkEqual(t, "exit", got.code, 122)
		checkContains(t, strings.Join(strings.Fields(got.err), " "), c.want)
	}
}
