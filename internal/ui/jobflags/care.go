package jobflags

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
	"gpuard/internal/ui/flagset"
)

// CareFlags are the flags of a supervised run.
type CareFlags struct {
	timeout, retry, limit string
	drift, stop, grace    string
	notify                string
	estimate              string
	Log                   logFile
}

// superviseFlags lists the flags that make a run supervised. The others only adjust the supervision.
func superviseFlags() []string { return []string{"timeout", "retry", "log", "drift", "notify"} }

// Add adds all of them.
func (c *CareFlags) Add(cmd *cobra.Command) {
	c.AddLife(cmd)
	flagset.AddOption(cmd, "log", &c.Log)
	flagset.AddOption(cmd, "expect", &c.estimate)
}

// AddLife registers those that a run of a sweep has, too.
func (c *CareFlags) AddLife(cmd *cobra.Command) {
	flagset.AddOption(cmd, "timeout", &c.timeout)
	flagset.AddOption(cmd, "retry", &c.retry)
	flagset.AddOption(cmd, "log-limit", &c.limit)
	flagset.AddOption(cmd, "drift", &c.drift)
	flagset.AddOption(cmd, "stop-signal", &c.stop)
	flagset.AddOption(cmd, "grace", &c.grace)
	flagset.AddOption(cmd, "notify", &c.notify)
}

// logFile is the value of --log.
type logFile struct {
	Path string
	// How often the flag was given.
	times int
}

// String returns the file.
func (f *logFile) String() string { return f.Path }

// Set replaces the file and counts the call.
func (f *logFile) Set(text string) error {
	f.Path, f.times = text, f.times+1
	return nil
}

// Type is the type of a flag that takes a word.
func (f *logFile) Type() string { return "string" }

// readCare reads the flags of a run. It returns nil for one without supervision; --grace is valid then with ranks.
func (c *CareFlags) readCare(cmd *cobra.Command, spec *job.Spec, ranks bool) (*job.Care, error) {
	set := func(name string) bool { return cmd.Flags().Changed(name) }
	out, err := c.ReadFlags(cmd, spec)
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

// ReadFlags reads the flags.
func (c *CareFlags) ReadFlags(cmd *cobra.Command, spec *job.Spec) (*job.Care, error) {
	set := func(name string) bool { return cmd.Flags().Changed(name) }
	if c.Log.times > 1 {
		return nil, errors.New("cannot use --log twice: the output goes into one file, and --log can be given once")
	}
	if c.Log.Path == "-" {
		return nil, errors.New("cannot use --log -: the output goes to standard output anyway; name a file: --log run.log")
	}
	if err := flagset.RefuseTogether(cmd, flagset.OptionConflicts()); err != nil {
		return nil, err
	}

	out := &job.Care{Log: c.Log.Path, Notify: c.notify}
	var errs []error
	keep := func(err error) { errs = append(errs, err) }
	keep(run.CheckNotify(c.notify))
	var err error
	if set("timeout") {
		spec.Timeout, err = flagset.ReadDuration("timeout", c.timeout)
		keep(err)
	}

	if set("expect") {
		spec.Time, err = flagset.ReadDuration("expect", c.estimate)
		keep(err)
	}

	if set("retry") {
		out.Retries, out.Any, err = readRetry(c.retry)
		keep(err)
	}

	if set("drift") {
		out.Drift, err = readDrift(cmd, c.drift)
		keep(err)
	}

	out.LogLimit, err = readLogLimit(c.limit)
	keep(err)
	out.Stop, err = readStopSignal(c.stop)
	keep(err)
	spec.Grace, err = time.ParseDuration(c.grace)
	if err != nil || spec.Grace != 0 {
		spec.Grace, err = flagset.ReadDuration("grace", c.grace)
		keep(err)
	}

	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, errs[i]
	}

	return out, nil
}

// readRetry reads --retry.
func readRetry(text string) (n int, always bool, err error) {
	number, when, _ := strings.Cut(text, ":")
	n, err = strconv.Atoi(number)
	if err != nil || n < 1 || n > 1000 || !slices.Contains([]string{"", "machine", "any"}, when) || strings.HasSuffix(text, ":") {
		return 0, false, fmt.Errorf("cannot read --retry %q: write how often, such as --retry 3 (after a fault of the machine) or --retry 3:any", text)
	}

	return n, when == "any", nil
}

// readStopSignal returns the full name of --stop-signal. It accepts only signals that end a program.
func readStopSignal(text string) (string, error) {
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if !slices.Contains([]string{"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGABRT", "SIGKILL"}, name) {
		return "", fmt.Errorf("cannot read --stop-signal %q: write TERM, INT, HUP, QUIT, USR1, USR2, ALRM, ABRT or KILL", text)
	}
	return name, nil
}

// readLogLimit reads --log-limit.
func readLogLimit(text string) (gpu.Bytes, error) {
	n, err := gpu.ParseBytes(text)
	if err != nil || n < 1<<12 {
		return 0, fmt.Errorf("cannot read --log-limit %q: write a size of 4K or more, such as 64M", text)
	}
	return n, nil
}
