package planview

import (
	"testing"
	"time"

	"gpuard/internal/core/prose"
	"gpuard/internal/core/status"
	"gpuard/internal/ui/console"
	"gpuard/internal/ui/translate"
)

func TestStanding(t *testing.T) {
	today := time.Date(2026, 3, 1, 15, 0, 0, 0, time.UTC)
	held := []status.Holder{
		{Device: "GPU 0", User: "alice", Command: "train.py", PID: 4242, Since: today.Add(-3 * time.Hour)},
		{Device: "GPU 1", User: "bob", Command: "python", Since: today.Add(-48 * time.Hour)},
		{Device: "GPU 2", User: "carol", Command: "jupyter"},
		{Device: "GPU 3", Text: "unhealthy"},
	}
	for _, c := range []struct {
		s     status.Standing
		width int
		want  string
	}{
		{status.Standing{Want: "1 GPU", Place: 3, Of: 12, Holders: held}, 0,
			"waiting for 1 GPU, 3rd of 12; GPU 0: train.py of alice (PID 4242) since 12:00; GPU 1: python of bob since 27 Feb 15:00; GPU 2: jupyter of carol; GPU 3: unhealthy"},
		{status.Standing{Want: "1 GPU", Place: 3, Of: 12, Holders: held}, 60, "waiting for 1 GPU, 3rd of 12; GPU 0: train.py of alice; G..."},
		{status.Standing{Want: "1 GPU", Place: 3, Of: 12, Holders: held}, 70, "waiting for 1 GPU, 3rd of 12; GPU 0: train.py of alice since 12:00;..."},
		{status.Standing{Want: "1 GPU", Place: 3, Of: 3, Holders: held[:1]}, 40 - len("gpuard: ") - 1, "3rd of 3; GPU 0: train.py of..."},
		{status.Standing{Want: "1 GPU", Place: 1, Of: 1, Stuck: true, Holders: held[3:]}, 0, "waiting for 1 GPU, 1st of 1; a user has to act; GPU 3: unhealthy"},
		{status.Standing{Want: "2 GPUs with 20 GiB", Place: 2, Of: 2, Ahead: "train.py of bob"}, 0, "waiting for 2 GPUs with 20 GiB, 2nd of 2; train.py of bob is next"},
		{status.Standing{Want: "1 GPU", Holders: []status.Holder{{Device: "GPU 0", User: "alice", Command: "sh", Since: today, Keeper: "PID 7 (sleep)"}}}, 0,
			"waiting for 1 GPU; GPU 0: sh of alice has ended, still held by PID 7 (sleep)"},
		{status.Standing{Want: "1 GPU", Holders: []status.Holder{{Device: "GPU 0", User: "alice", Command: "python3", Since: today, Awaited: today.Add(15 * time.Second)}}}, 0,
			"waiting for 1 GPU; GPU 0: python3 of alice has ended, kept for its next start until " + today.Add(15*time.Second).Format(time.TimeOnly)},
		{status.Standing{Want: "4 GPUs", Holders: []status.Holder{
			{Device: "GPU 0", User: "alice", Command: "train.py", PID: 1, Apart: true, Since: today},
			{Device: "GPU 1", User: "bob", Command: "python", PID: 7}, {Device: "GPU 2", User: "alice", Command: "train.py", PID: 1, Apart: true, Since: today},
			{Device: "GPU 3", User: "bob", Command: "python", PID: 8}}}, 0,
			"waiting for 4 GPUs; GPU 0, 2: train.py of alice (PID 1 in its container) since 15:00; GPU 1: python of bob (PID 7); GPU 3: python of bob (PID 8)"},
		{status.Standing{Want: "a 1g.10gb slice"}, 0, "waiting for a 1g.10gb slice"},
	} {
		if got := StandingLine(c.s, today, translate.Language{}, c.width); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 102: "102nd", 111: "111th"} {
		if got := prose.Ordinal(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for width := 1; width < 80; width++ {
		if got := console.CellWidth(StandingLine(status.Standing{Want: "1 GPU", Holders: held}, today, translate.Language{}, width)); got > width {
			t.Errorf("%d cells in %d", got, width)
		}
	}
}

// TestStandingInChinese: the line in Chinese, shorter where there is less room, and never wider.
func TestStandingInChinese(t *testing.T) {
	today := time.Date(2026, 3, 1, 15, 0, 0, 0, time.UTC)
	s := status.Standing{Want: "1 GPU", Place: 2, Of: 3, Ahead: "train.py of bob (PID 7)", Holders: []status.Holder{
		{Device: "GPU 0", User: "alice", Command: "train.py", PID: 4242, Since: today.Add(-3 * time.Hour)}, {Device: "GPU 1", Text: "in use without a lease by PID 9 of eve (python, 2.0 GiB, 3 h old)"}}}
	language := translate.ReadLocale("zh_CN")
	for width, want := range map[int]string{
		0:  "正在等待 1 块 GPU，排第 2，共 3 个请求；下一个是 bob 的 train.py (PID 7)；GPU 0：alice 的 train.py (PID 4242)，自 12:00 起；GPU 1：被没有租约的进程占用：eve 的 PID 9 (python，2.0 GiB，已运行 3 小时)",
		60: "排第 2，共 3 个请求；下一个是 bob 的 train.py (PID 7)；GP...",
	} {
		if got := StandingLine(s, today, language, width); got != want {
			t.Errorf("%d: %q, want %q", width, got, want)
		}
	}
	for width := 1; width < 160; width++ {
		if got := console.CellWidth(StandingLine(s, today, language, width)); got > width {
			t.Errorf("%d cells in %d", got, width)
		}
	}
}
