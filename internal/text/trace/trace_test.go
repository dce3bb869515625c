package trace

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"gpuard/internal/core/sim"
)

const second = time.Second

func TestFormats(t *testing.T) {
	day := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC).UnixNano()
	for _, c := range []struct {
		name, text, format string
		jobs               []sim.Job
		users, remarks     []string
	}{
		{"philly", "timestamp,duration,num_gpus,gpu_time,cluster\n2026-01-31 08:00:10,66.5,1,66.5,x\n\n2026-01-31 08:00:00,60,16,960,x\n2026-01-31 08:00:05,60,0,0,x\n", "a Philly trace",
			[]sim.Job{{Arrival: day, Lasts: 60 * second, GPUs: 16}, {Arrival: day + 10e9, Lasts: 66500 * time.Millisecond, GPUs: 1}}, []string{""},
			[]string{"1 jobs without a GPU are left out", "1 jobs came earlier than the line before them: the jobs were sorted"}},
		{"philly with users", "timestamp,duration,num_gpus,user\n2026-01-31 08:00:00,60,2,bob\n2026-01-31 08:00:00,60,2,alice\n2026-01-31 08:00:00,61,2,bob\n", "a Philly trace",
			[]sim.Job{{Arrival: day, Lasts: 60 * second, GPUs: 2}, {Arrival: day, Lasts: 60 * second, GPUs: 2, User: 1}, {Arrival: day, Lasts: 61 * second, GPUs: 2}}, []string{"bob", "alice"}, nil},
		{"openb", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\na,1,2,1,460,,LS,Running,10,100,20\nb,1,2,8,1000,,LS,Running,20,30,\nc,1,2,0,0,,LS,Running,20,30,\nd,1,2,1,1000,,LS,Pending,40,,\ne,1,2,1,1000,,LS,Failed,50,55,60\n",
			"an openb list of pods", []sim.Job{{Arrival: 10e9, Lasts: 80 * second, GPUs: 1, Share: 460}, {Arrival: 20e9, Lasts: 10 * second, GPUs: 8}}, []string{""},
			[]string{"1 jobs without a GPU are left out", "1 jobs without a start or an end are left out", "1 jobs that end before they start are left out"}},
		{"sacct", "JobID|User|Submit|Elapsed|Timelimit|AllocTRES|State\n7|alice|2026-01-31T08:00:00|1-02:03:04|2-00:00:00|billing=8,gres/gpu:a100=2,gres/gpu=2,mem=64G|COMPLETED\n7.batch||2026-01-31T08:00:00|00:01:00||cpu=8|COMPLETED\n8|bob|2026-01-31T08:00:01|02:03|UNLIMITED|gres/gpu:a100=1,gres/gpu:h100=2|FAILED\n9|bob|2026-01-31T08:00:02|00:00:00|10|gres/gpu=1|CANCELLED\n10|bob|2026-01-31T08:00:03|00:10:00|60|cpu=1|COMPLETED\n",
			"the answer of sacct -P", []sim.Job{{Arrival: day, Lasts: 26*time.Hour + 3*time.Minute + 4*second, Estimate: 48 * time.Hour, GPUs: 2}, {Arrival: day + 1e9, Lasts: 123 * second, GPUs: 3, User: 1}},
			[]string{"alice", "bob"}, []string{"1 jobs without a GPU are left out", "1 jobs without a start or an end are left out", "1 lines of steps of jobs are left out"}},
		{"history", `{
  "schema": "gpuard.history/1",
  "jobs": [{"job": 1, "submitted": "2026-01-31T08:00:00Z", "seconds": 12.5, "expect_seconds": 60, "devices": [{"index": 0}, {"index": 1}]}, {"job": 2, "submitted": "2026-01-31T08:00:01Z", "seconds": 1, "devices": []}], "use": []}`,
			"gpuard history", []sim.Job{{Arrival: day, Lasts: 12500 * time.Millisecond, Estimate: time.Minute, GPUs: 2}}, []string{""}, []string{"1 jobs without a GPU are left out"}},
		{"leases", `{"lease":"a1","user":"bob","devices":[{"uuid":"x"}],"since":"2026-01-31T08:00:00Z","until":"2026-01-31T08:00:05Z"}
{"lease":"a2","user":"eve","devices":[{"uuid":"x"}],"share":5,"since":"2026-01-31T08:00:01Z","until":"2026-01-31T08:00:05Z"}
`, "the leases that have ended", []sim.Job{{Arrival: day, Lasts: 5 * second, GPUs: 1}, {Arrival: day + 1e9, Lasts: 4 * second, GPUs: 1, User: 1}}, []string{"bob", "eve"}, []string{"1 leases of a part of a GPU count as whole GPUs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ReadJobs(strings.NewReader(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Jobs, c.jobs) || got.Format != c.format || !slices.Equal(got.Users, c.users) || !slices.Equal(got.Remarks, c.remarks) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestBad(t *testing.T) {
	const head = "timestamp,duration,num_gpus\n2026-01-31 08:00:00,1,1\n"
	for text, want := range map[string]string{
		"":                                    "it is empty",
		"hello\n":                             "line 1: the format is not known",
		"timestamp,num_gpus\n":                "line 1: the column duration is missing",
		"timestamp,duration\n":                "line 1: the column num_gpus is missing",
		"Submit|Elapsed\n":                    "the column alloctres or reqtres is missing",
		head + "yesterday,1,1\n":              `line 3: timestamp "yesterday"`,
		head + "2026-01-31 08:00:00,NaN,1\n":  `line 3: duration "NaN"`,
		head + "2026-01-31 08:00:00,1,many\n": `line 3: num_gpus "many"`,
		head + "2026-01-31 08:00:00,1,-4\n":   "line 3: -4 GPUs are outside",
		head + "2026-01-31 08:00:00\n":        "line 3: it has 1 columns",
		head + strings.Repeat("x", 1<<17):     "a line is longer than 65536 bytes",
		"timestamp,duration,num_gpus\n2026-01-31 08:00:00,1,0\n":      "it has no job on a GPU: 1 jobs without a GPU are left out",
		`{"schema": "gpuard.history/1", "jobs": 7}`:                   "jobs is not a list",
		`{"schema": "gpuard.history/1", "jobs": [{"sub`:               "byte ",
		`{"lease": "a", "since": 4}`:                                  "line 1: ",
		"num_gpu,gpu_milli,creation_time,deletion_time\n1,2000,1,2\n": `line 2: gpu_milli "2000"`,
	} {
		if _, err := ReadJobs(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
}

// lines is a trace of many jobs that is never in memory as a whole.
type lines struct {
	left int
	rest []byte
}

func (l *lines) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		if l.left == 0 {
			return 0, io.EOF
		}
		l.left--
		l.rest = fmt.Appendf(l.rest, "2026-01-31 08:00:00,%d,1\n", l.left%1000)
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// TestTooLong: a trace with more jobs than can be replayed is refused with its line.
func TestTooLong(t *testing.T) {
	_, err := readAtMost(io.MultiReader(strings.NewReader("timestamp,duration,num_gpus\n"), &lines{left: 1001}), 1000)
	if err == nil || !strings.Contains(err.Error(), "line 1002: there are more than 1000 jobs") {
		t.Error(err)
	}
}

// BenchmarkRead reads as many jobs as there can be, and one more. It says what a job takes in memory.
func BenchmarkRead(b *testing.B) {
	for b.Loop() {
		got, err := ReadJobs(io.MultiReader(strings.NewReader("timestamp,duration,num_gpus\n"), &lines{left: MaxJobs}))
		if err != nil || len(got.Jobs) != MaxJobs {
			b.Fatal(err)
		}
		b.ReportMetric(float64(unsafe.Sizeof(got.Jobs[0])), "B/job")
	}
	_, err := ReadJobs(io.MultiReader(strings.NewReader("timestamp,duration,num_gpus\n"), &lines{left: MaxJobs + 1}))
	if err == nil {
		b.Fatal("one more was read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("timestamp,duration,num_gpus\n2026-01-31 08:00:00,1,1\n")
	f.Add("JobID|User|Submit|Elapsed|Timelimit|AllocTRES|State\n7|a|2026-01-31T08:00:00|1-02|2:00|gres/gpu=2|COMPLETED\n")
	f.Add("num_gpu,gpu_milli,creation_time,deletion_time\n1,200,1,2\n")
	f.Add(`{"jobs": [{"submitted": "2026-01-31T08:00:00Z", "seconds": 12.5, "devices": [{}]}]}`)
	f.Add(`{"lease":"a1","user":"bob","devices":[{}],"since":"2026-01-31T08:00:00Z","until":"2026-01-31T08:00:05Z"}`)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ReadJobs(strings.NewReader(text))
		if err != nil {
			return
		}
		for i, j := range got.Jobs {
			if j.GPUs < 1 || j.Lasts < 0 || j.Estimate < 0 || int(j.User) >= len(got.Users) || i > 0 && j.Arrival < got.Jobs[i-1].Arrival {
				t.Fatalf("job %d is %+v", i, j)
			}
		}
	})
}
