package main

import (
	"strings"
	"testing"
)

// TestWallAndMask: behind a wall a command that sets the mask is started where that does no harm, with a line where it then uses less than
// it has, and refused where it names what is not there.
func TestWallAndMask(t *testing.T) {
	t.Parallel()
	w := newDeviceFileMachine(t)
	for _, level := range []string{"namespace", "landlock"} {
		for _, c := range []struct {
			device, command string
			mask            string // that it has; "" it is refused
			says            string // on standard error, in one line; "" nothing
		}{
			{"1", "CUDA_VISIBLE_DEVICES=0 " + w.openScriptPath(), "0", ""},
			{"1", "env -u CUDA_VISIBLE_DEVICES " + w.openScriptPath(), "", ""},
			{"1,3", "CUDA_VISIBLE_DEVICES=1,0 " + w.openScriptPath(), "1,0", ""},
			{"1,3", "CUDA_VISIBLE_DEVICES=1 " + w.openScriptPath(), "1", "gpuard: the command sets CUDA_VISIBLE_DEVICES=1 itself, and so uses no more than 1 of the GPUs that it is given; leave that out of the script"},
			{fakeUUID(1), "CUDA_VISIBLE_DEVICES=" + fakeUUID(1) + " " + w.openScriptPath(), fakeUUID(1), ""},
			{"1", "CUDA_VISIBLE_DEVICES=1 " + w.openScriptPath(), "refused", "it sets CUDA_VISIBLE_DEVICES=1 itself, and can open one GPU, number 0"},
			{"1", "CUDA_VISIBLE_DEVICES=" + fakeUUID(2) + " " + w.openScriptPath(), "refused", "it sets CUDA_VISIBLE_DEVICES=" + fakeUUID(2) + " itself"},
		} {
			got := runCommand(t, w.isolatedCommand("run", "--isolate", level, "--device", c.device, "--", "sh", "-c", c.command))
			said, _, _ := strings.Cut(strings.Join(strings.Fields(got.err), " "), " gpuard: GPU ")
			said = strings.TrimPrefix(said, "gpuard: GPU ")
			if c.mask == "refused" {
				checkEqual(t, level+" "+c.command+": "+got.err, []any{got.code, got.out}, []any{125, ""})
				checkContains(t, said, c.says)
				continue
			}
			checkContains(t, got.out, "nvidia2 ", ", mask "+c.mask+"\n")
			checkEqual(t, level+" "+c.command+": "+got.out, got.code, 0)
			if c.says != "" {
				checkEqual(t, level+" "+c.command, said, c.says)
			} else if strings.Contains(got.err, "the command") {
				t.Errorf("%s: %s: %s", level, c.command, got.err)
			}
		}
	}
}
