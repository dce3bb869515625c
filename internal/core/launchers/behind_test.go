package launchers

import (
	"strings"
	"testing"
)

// TestBehind: where a program can open its own GPUs alone, a list of numbers chooses among these. It is wrong where it names one that is not
// there, and says less than it could where it names some.
func TestBehind(t *testing.T) {
	const (
		sure, fewer, right = "sure", "fewer", ""
		own, other         = "GPU-aaaa0000-0000-4000-8000-000000000001", "GPU-bbbb0000-0000-4000-8000-000000000002"
	)
	for _, c := range []struct {
		command string
		gpus    int
		named   string
		want    string
		says    string
	}{
		{"env CUDA_VISIBLE_DEVICES=0 x", 1, "", right, ""},
		{"env CUDA_VISIBLE_DEVICES=0 x", 2, "", fewer, "sets CUDA_VISIBLE_DEVICES=0 itself, and so uses no more than 1 of the GPUs"},
		{"env CUDA_VISIBLE_DEVICES=1,0 x", 2, "", right, ""},
		{"env CUDA_VISIBLE_DEVICES=0,0 x", 2, "", fewer, "no more than 1"},
		{"env CUDA_VISIBLE_DEVICES=1 x", 1, "1", sure, "itself, and can open one GPU, number 0"},
		{"env CUDA_VISIBLE_DEVICES=0,2 x", 2, "", sure, "2 GPUs, numbers 0 to 1"},
		{"env CUDA_VISIBLE_DEVICES=0 x", 0, "", sure, "no GPU"},
		{"env CUDA_VISIBLE_DEVICES=" + own + " x", 1, "GPU-aaaa", right, ""},
		{"env CUDA_VISIBLE_DEVICES=" + other + " x", 1, "GPU-aaaa", sure, "sets CUDA_VISIBLE_DEVICES=" + other},
		{"env CUDA_VISIBLE_DEVICES=" + own + "," + other + " x", 2, "GPU-aaaa,1", sure, ""},
		{"env CUDA_VISIBLE_DEVICES=" + own + " x", 1, "", sure, ""},
		{"env -u CUDA_VISIBLE_DEVICES x", 2, "", right, ""},
		{"env -i PATH=/bin x", 2, "", right, ""},
		{"accelerate launch --gpu_ids 0,1 t.py", 2, "", right, ""},
		{"accelerate launch --gpu_ids 2,3 t.py", 2, "", sure, "chooses GPUs of the whole machine by --gpu_ids 2,3, and can open"},
		{"deepspeed --num_gpus 2 t.py", 2, "", right, ""},
		{"deepspeed --num_gpus 4 t.py", 2, "", sure, "--num_gpus 4, and can open"},
		{"deepspeed --include localhost:1 t.py", 2, "", fewer, ""},
		{"python main.py --cuda-device 0", 1, "", right, ""},
		{"ssh box python t.py", 1, "", sure, "starts the program elsewhere"},
	} {
		words, named := strings.Fields(c.command), strings.Split(c.named, ",")
		got, said := right, ""
		for _, d := range Doubts(words, c.gpus, nil) {
			if d.Effect == "" && c.want != sure { // exceeded and the like
				continue
			}
			left, doubtful := d.Behind(c.gpus, named)
			switch {
			case doubtful && left.Sure:
				got, said = sure, left.Seen
			case doubtful && got == right:
				got, said = fewer, left.Seen
			}
		}
		if got != c.want || !strings.Contains(said, c.says) {
			t.Errorf("%s on %d GPUs (%s): %q, want %q; says %q, want %q", c.command, c.gpus, c.named, got, c.want, said, c.says)
		}
	}
}
