package jobflags

import (
	"cmp"
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
	care                     job.Care
	timeout, estimate, grace time.Duration
	logs                     int // how often --log was given
	torchrun                 bool
	ranks                    string
	nproc                    int
	// The text of --verify, and what it means.
	Verify string
	watch  *run.Oversight
}

// Log is the file of --log.
func (c *CareFlags) Log() string { return c.care.Log }

// superviseFlags lists the flags that make a run supervised. The others only adjust the supervision.
func superviseFlags() []string { return []string{"timeout", "retry", "log", "drift", "notify"} }

// Add adds all of them.
func (c *CareFlags) Add(cmd *cobra.Command) {
	c.AddLife(cmd)
	flagset.AddOption(cmd, "log", func(text string) error { c.care.Log, c.logs = text, c.logs+1; return nil })
	flagset.AddOption(cmd, "expect", &c.estimate)
}

// AddLife registers those that a run of a sweep has, too.
func (c *CareFlags) AddLife(cmd *cobra.Command) {
	flagset.AddOption(cmd, "timeout", &c.timeout)
	flagset.AddOption(cmd, "retry", c.setRetry)
	flagset.AddOption(cmd, "log-limit", c.setLogLimit)
	flagset.AddOption(cmd, "drift", func(text string) (err error) { c.care.Drift, err = readDriftKinds(text); return err })
	flagset.AddOption(cmd, "stop-signal", c.setStopSignal)
	flagset.AddOption(cmd, "grace", c.setGrace)
	flagset.AddOption(cmd, "notify", func(text string) error { c.care.Notify = text; return run.CheckNotify(text) })
	flagset.AddOption(cmd, "torchrun", &c.torchrun)
	flagset.AddOption(cmd, "ranks", &c.ranks)
	flagset.AddOption(cmd, "nproc", &c.nproc)
	flagset.AddOption(cmd, "verify", func(text string) (err error) { c.Verify = text; c.watch, err = ReadOversight(text); return err })
}

// readCare reads the flags of a run. It returns nil for one without supervision; --grace is valid then with ranks.
func (c *CareFlags) readCare(cmd *cobra.Command, spec *job.Spec) (*job.Care, error) {
	set := func(name string) bool { return cmd.Flags().Changed(name) }
	out, err := c.ReadFlags(cmd, spec)
	if err != nil || slices.ContainsFunc(superviseFlags(), set) {
		return out, err
	}

	for flag, of := range map[string]string{"log-limit": "--log FILE", "stop-signal": "--timeout 24h or --drift", "grace": "--timeout 24h, --drift or --ranks"} {
		if set(flag) && (!c.hasRanks(cmd) || flag != "grace") {
			return nil, fmt.Errorf("cannot use --%s alone: it needs another flag, such as %s", flag, of)
		}
	}

	return nil, nil //nolint:nilnil // not asked for
}

// ReadFlags reads the flags.
func (c *CareFlags) ReadFlags(cmd *cobra.Command, spec *job.Spec) (*job.Care, error) {
	switch {
	case c.logs > 1:
		return nil, errors.New("cannot use --log twice: the output goes into one file, and --log can be given once")
	case c.care.Log == "-":
		return nil, errors.New("cannot use --log -: the output goes to standard output anyway; name a file: --log run.log")
	}

	out := c.care
	spec.Timeout, spec.Time, spec.Grace = c.timeout, c.estimate, c.grace

	return &out, cmp.Or(flagset.RefuseOptions(cmd), checkDrift(cmd))
}

func (c *CareFlags) setRetry(text string) (err error) {
	number, when, _ := strings.Cut(text, ":")
	c.care.Retries, err = strconv.Atoi(number)
	c.care.Any = when == "any"
	if n := c.care.Retries; err != nil || n < 1 || n > 1000 || !slices.Contains([]string{"", "machine", "any"}, when) || strings.HasSuffix(text, ":") {
		return fmt.Errorf("cannot read --retry %q: write how often, such as --retry 3 (after a fault of the machine) or --retry 3:any", text)
	}

	return nil
}

// setStopSignal accepts only signals that end a program.
func (c *CareFlags) setStopSignal(text string) error {
	c.care.Stop = "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if !slices.Contains([]string{"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGABRT", "SIGKILL"}, c.care.Stop) {
		return fmt.Errorf("cannot read --stop-signal %q: write TERM, INT, HUP, QUIT, USR1, USR2, ALRM, ABRT or KILL", text)
	}
	return nil
}

func (c *CareFlags) setLogLimit(text string) (err error) {
	c.care.LogLimit, err = gpu.ParseBytes(text)
	if err != nil || c.care.LogLimit < 1<<12 {
		return fmt.Errorf("cannot read --log-limit %q: write a size of 4K or more, such as 64M", text)
	}
	return nil
}

// setGrace also accepts no time at all.
func (c *CareFlags) setGrace(text string) (err error) {
	c.grace, err = time.ParseDuration(text)
	if err != nil || c.grace != 0 {
		c.grace, err = flagset.ReadDuration("grace", text)
	}
	return err
}
