package sim

import (
	"cmp"
	"slices"
	"time"
)

// Result is what became of the jobs. Means and the like are nil where there was no job.
type Result struct {
	// The policy by which jobs started.
	Policy string `json:"policy"`
	GPUs   int    `json:"gpus"` // of the machine
	Jobs   int    `json:"jobs"` // that were started
	// Left out: the machine can never serve them.
	TooLarge int `json:"too_large"`
	// The mean time from arrival to end.
	CompletionMean *float64 `json:"completion_mean_seconds"`
	// Half of the jobs take less.
	CompletionMedian *float64 `json:"completion_median_seconds"`
	// The mean time from arrival to start.
	WaitMean *float64 `json:"wait_mean_seconds"`
	// The wait that 99 of 100 jobs do not exceed.
	WaitP99 *float64 `json:"wait_p99_seconds"`
	WaitMax *float64 `json:"wait_max_seconds"` // the longest
	// The mean wait of jobs for 8 and more GPUs; null: there is none.
	WaitLarge *float64 `json:"wait_large_mean_seconds"`
	// Completion over running time, which counts as a minute at least.
	Slowdown *float64 `json:"slowdown_mean"`
	// Part of the GPU time until the last end that was given to jobs, shares by size.
	Allocated *float64 `json:"allocated_ratio"`
	// Part of it that was free while jobs waited.
	Fragmented *float64 `json:"fragmented_ratio"`
	// The time from the first arrival to the last end.
	Span  float64 `json:"span_seconds"`
	Users []User  `json:"users"` // by number
}

// User is the part of a result that belongs to a user.
type User struct {
	User uint32 `json:"-"`
	// Name; "" where the trace has none.
	Name string `json:"user"`
	Jobs int    `json:"jobs"` // that were started
	// The time from arrival to start.
	Wait float64 `json:"wait_mean_seconds"`
	// The time from arrival to end.
	Completion float64 `json:"completion_mean_seconds"`
	// Granted, shares by size.
	GPUSeconds float64 `json:"gpu_seconds"`
}

// tally is what is counted during a replay: per job two times.
type tally struct {
	waits, completions []time.Duration
	slowdown           float64
	large, waitedLarge float64
	tooLarge           int
	given, stranded    float64 // GPU seconds
	users              map[uint32]*User
}

// accountUse counts the use of the devices for a time in which nothing happens.
func (r *replay) accountUse(d time.Duration) {
	given, free := 0.0, 0.0
	for k := range r.devices {
		switch one := &r.devices[k]; {
		case one.whole > 0:
			given++
		default:
			part := float64(one.left) / float64(max(1, one.can))
			given, free = given+1-part, free+part
		}
	}
	r.given += given * d.Seconds()
	if r.line.waitingCount() > 0 {
		r.stranded += free * d.Seconds()
	}
}

func (t *tally) recordStart(now int64, j *Job) {
	wait := time.Duration(now - j.Arrival)
	done := wait + j.Lasts
	t.waits, t.completions = append(t.waits, wait), append(t.completions, done)
	t.slowdown += max(1, done.Seconds()/max(j.Lasts.Seconds(), 60))
	if j.GPUs >= Large {
		t.large++
		t.waitedLarge += wait.Seconds()
	}

	if t.users == nil {
		t.users = map[uint32]*User{}
	}

	u := t.users[j.User]
	if u == nil {
		u = &User{User: j.User}
		t.users[j.User] = u
	}

	u.Jobs++
	u.Wait += wait.Seconds()
	u.Completion += done.Seconds()
	part := 1.0
	if j.Share > 0 {
		part = float64(j.Share) / 1000
	}

	u.GPUSeconds += j.Lasts.Seconds() * float64(j.GPUs) * part
}

func (r *replay) buildResult() Result {
	out := Result{Policy: r.Policy.Name, GPUs: len(r.devices), Jobs: len(r.waits), TooLarge: r.tooLarge, Span: time.Duration(r.now - r.begin).Seconds(), Users: []User{}}
	for _, u := range r.users {
		u.Wait, u.Completion = u.Wait/float64(u.Jobs), u.Completion/float64(u.Jobs)
		out.Users = append(out.Users, *u)
	}

	slices.SortFunc(out.Users, func(a, b User) int { return cmp.Compare(a.User, b.User) })
	if n := float64(len(r.waits)); n > 0 {
		out.CompletionMean, out.WaitMean, out.Slowdown = new(meanSeconds(r.completions)), new(meanSeconds(r.waits)), new(r.slowdown/n)
		slices.Sort(r.waits)
		slices.Sort(r.completions)
		out.CompletionMedian = new(r.completions[len(r.completions)/2].Seconds())
		out.WaitP99, out.WaitMax = new(r.waits[len(r.waits)*99/100].Seconds()), new(r.waits[len(r.waits)-1].Seconds())
	}

	if r.large > 0 {
		out.WaitLarge = new(r.waitedLarge / r.large)
	}

	if whole := out.Span * float64(len(r.devices)); whole > 0 {
		out.Allocated, out.Fragmented = new(r.given/whole), new(r.stranded/whole)
	}

	return out
}

func meanSeconds(list []time.Duration) float64 {
	sum := 0.0
	for _, d := range list {
		sum += d.Seconds()
	}
	return sum / float64(len(list))
}
