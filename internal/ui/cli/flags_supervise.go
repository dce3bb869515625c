package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/run"
	"gpuard/internal/core/gpu"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
)

// careFlags are the flags of a supervised run.
type careFlags struct {
	timeout, retry, limit string
	drift, stop, grace    string
	notify                string
	estimate              string
	log                   logFile
}

// superviseFlags lists the flags that make a run supervised. The others only adjust the supervision.
func superviseFlags() []string { return []string{"timeout", "retry", "log", "drift", "notify"} }

func (c *careFlags) add(cmd *cobra.Command) {
	c.addLife(cmd)
	addOption(cmd, "log", &c.log)
	addOption(cmd, "expect", &c.estimate)
}

// addLife registers those that a run of a sweep has, too.
func (c *careFlags) addLife(cmd *cobra.Command) {
	addOption(cmd, "timeout", &c.timeout)
	addOption(cmd, "retry", &c.retry)
	addOption(cmd, "log-limit", &c.limit)
	addOption(cmd, "drift", &c.drift)
	addOption(cmd, "stop-signal", &c.stop)
	addOption(cmd, "grace", &c.grace)
	addOption(cmd, "notify", &c.notify)
}

// logFile is the value of --log.
type logFile struct {
	path  string
	times int // how often the flag was given
}

// String returns the file.
func (f *logFile) String() string { return f.path }

// Set replaces the file and counts the call.
func (f *logFile) Set(text string) error {
	f.path, f.times = text, f.times+1
	return nil
}

// Type is the type of a flag that takes a word.
func (f *logFile) Type() string { return "string" }

// care reads the flags of a run. It returns nil for one without supervision; --grace is valid then with ranks.
func (c *careFlags) care(cmd *cobra.Command, spec *job.Spec, ranks bool) (*job.Care, error) {
	set := func(name string) bool { return cmd.Flags().Changed(name) }
	out, err := c.read(cmd, spec)
	if err != nil || slices.ContainsFunc(superviseFlags(), set) {
		return out, err
	}
	for flag, of := range map[string]string{"log-limit": "--log FILE", "stop-signal": "--timeout 24h or --drift", "grace": "--timeout 24h, --drift or --ranks"} {
		if set(flag) && (!ranks || flag != "grace") {
			return nil, fmt.Errorf("cannot use --%s alone: it needs another flag, such as %s", flag, of)
		}
	}
	return nil, nil //nolint:nilnil // not asked for
}

// read reads the flags.
func (c *careFlags) read(cmd *cobra.Command, spec *job.Spec) (*job.Care, error) {
	set := func(name string) bool { return cmd.Flags().Changed(name) }
	if c.log.times > 1 {
		return nil, errors.New("cannot use --log twice: the output goes into one file, and --log can be given once")
	}
	if c.log.path == "-" {
		return nil, errors.New("cannot use --log -: the output goes to standard output anyway; name a file: --log run.log")
	}
	if err := refuseTogether(cmd, optionConflicts()); err != nil {
		return nil, err
	}
	out := &job.Care{Log: c.log.path, Notify: c.notify}
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	keep(run.CanNotify(c.notify))
	var err error
	if set("timeout") {
		spec.Timeout, err = duration("timeout", c.timeout)
		keep(err)
	}
	if set("expect") {
		spec.Time, err = duration("expect", c.estimate)
		keep(err)
	}
	if set("retry") {
		out.Retries, out.Any, err = retries(c.retry)
		keep(err)
	}
	if set("drift") {
		out.Drift, err = readDrift(cmd, c.drift)
		keep(err)
	}
	out.LogLimit, err = logLimit(c.limit)
	keep(err)
	out.Stop, err = stopSignal(c.stop)
	keep(err)
	if spec.Grace, err = time.ParseDuration(c.grace); err != nil || spec.Grace != 0 {
		spec.Grace, err = duration("grace", c.grace)
		keep(err)
	}
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, errs[i]
	}
	return out, nil
}

// retries reads --retry.
func retries(text string) (n int, always bool, err error) {
	number, when, _ := strings.Cut(text, ":")
	n, err = strconv.Atoi(number)
	if err != nil || n < 1 || n > 1000 || !slices.Contains([]string{"", "machine", "any"}, when) || strings.HasSuffix(text, ":") {
		return 0, false, fmt.Errorf("cannot read --retry %q: write how often, such as --retry 3 (after a fault of the machine) or --retry 3:any", text)
	}
	return n, when == "any", nil
}

// stopSignal returns the full name of --stop-signal. It accepts only signals that end a program.
func stopSignal(text string) (string, error) {
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if !slices.Contains([]string{"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGABRT", "SIGKILL"}, name) {
		return "", fmt.Errorf("cannot read --stop-signal %q: write TERM, INT, HUP, QUIT, USR1, USR2, ALRM, ABRT or KILL", text)
	}
	return name, nil
}

// logLimit reads --log-limit.
func logLimit(text string) (gpu.Bytes, error) {
	n, err := gpu.ParseBytes(text)
	if err != nil || n < 1<<12 {
		return 0, fmt.Errorf("cannot read --log-limit %q: write a size of 4K or more, such as 64M", text)
	}
	return n, nil
}

// ended is the JSON line at the end of a supervised run.
type ended struct {
	Schema   string        `json:"schema"`           // "gpuard.run-end/1"
	Lease    string        `json:"lease"`            // of the last start; "" without a device
	Devices  []job.Given   `json:"devices"`          // of the last start
	Starts   int           `json:"starts"`           // how often the command was started
	Seconds  float64       `json:"seconds"`          // run time, the sum of all starts
	Code     int           `json:"exit"`             // its exit code; -1 when a signal ended it
	Signal   string        `json:"signal,omitempty"` // that ended it: "SIGKILL"
	TimedOut bool          `json:"timed_out"`        // --timeout ended it
	Peak     *gpu.Bytes    `json:"host_memory_peak"` // largest host memory of one of its processes; null unknown, as when it is less than that of gpuard
	HeldBy   []job.Blocker `json:"held_by"`          // processes that still hold the lease
	Notes    []string      `json:"notes"`            // remarks since the last start
}

// supervise runs the command as a child of gpuard. It returns only if the command could not be started.
func (p *Program) supervise(cmd *cobra.Command, l *run.Launch, care *job.Care, o *runOptions) error {
	r, end, err := l.Supervise(cmd.Context(), *care, func(l *run.Launch, pid int) error { return p.announce(l, pid, o) })
	if err != nil {
		return err
	}
	l.Log(ending(r))
	switch {
	case o.json:
		err = lineJSON(p.Err, ended{"gpuard.run-end/1", r.Lease, append([]job.Given{}, r.Devices...), r.Starts,
			float64(r.Ran.Milliseconds()) / 1000, r.Code, r.Signal, r.TimedOut, r.Peak, append([]job.Blocker{}, r.HeldBy...), append([]string{}, p.said...)})
	case !o.quiet:
		err = p.tell(ending(r))
		if text := remaining(r); text != "" {
			p.Host.Say(text)
		}
	}
	_ = err // the command's own end counts
	end()
	return nil
}

// announce reports the devices: as text before the start, or as JSON after it, with the PID of the command.
func (p *Program) announce(l *run.Launch, pid int, o *runOptions) error {
	switch {
	case o.json && pid != 0:
		l.Plan.Notes = append(p.said, l.Plan.Notes...)
		p.said = nil
		return lineJSON(p.Err, started{"gpuard.run/1", l.Lease, pid, withLists(l.Plan), l.Ranks()})
	case !o.json && !o.quiet && pid == 0:
		for _, n := range l.Plan.Notes {
			_ = p.tell(n)
		}
		if line := l.Announce(); line != "" {
			_ = p.tell(line)
		}
	}
	return nil
}

// ending is the last line of a run: devices, run time, exit code or signal, and peak host memory.
func ending(r *job.Result) string {
	where := []string{}
	for _, d := range r.Devices {
		where = append(where, d.String())
	}
	if len(where) == 0 {
		where = []string{"no GPU"}
	}
	how := fmt.Sprintf("exit %d", r.Code)
	if r.Signal != "" {
		how = r.Signal
	}
	if r.TimedOut {
		how = "exit 124, ended by --timeout; the command itself: " + how
	}
	parts := []string{strings.Join(where, ", "), "ran " + elapsed(r.Ran), how}
	if r.Starts > 1 {
		parts = append(parts, fmt.Sprintf("%d starts", r.Starts))
	}
	if r.Peak != nil {
		parts = append(parts, fmt.Sprintf("at most %s of host memory in one process", *r.Peak))
	}
	return strings.Join(parts, "; ")
}

// remaining names the processes that hold the lease after the command ended; "" if there are none.
func remaining(r *job.Result) string {
	if len(r.HeldBy) == 0 {
		return ""
	}
	var names []string
	for _, b := range r.HeldBy[:min(len(r.HeldBy), 4)] {
		name := fmt.Sprintf("PID %d (%s)", b.PID, prose.Clean(b.Command))
		if b.Stopped {
			name = fmt.Sprintf("PID %d (%s, stopped: kill -CONT %[1]d)", b.PID, prose.Clean(b.Command))
		}
		names = append(names, name)
	}
	if more := len(r.HeldBy) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("processes of the command still hold lease %s: %s; end them, or type: gpuard release %s", r.Lease, strings.Join(names, ", "), r.Lease)
}

// elapsed formats a run time: "2.4 s", "1h3m".
func elapsed(d time.Duration) string {
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return strings.TrimSuffix(d.Round(time.Second).String(), "0s")
}
