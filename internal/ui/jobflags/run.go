package jobflags

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpuard/internal/app/run"
	"gpuard/internal/app/verify"
	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
	"gpuard/internal/ui/cli"
	"gpuard/internal/ui/failure"
	"gpuard/internal/ui/flagset"
)

// RunOptions are the options that gpuard run, a container and a service share.
type RunOptions struct {
	Spec SpecFlags
	CareFlags
	wait             WaitFlags
	Dry, JSON, Quiet bool
	Ask              bool
	KeepWhile, Name  string
}

// Add registers the flags for devices, waiting, supervision and ranks.
func (o *RunOptions) Add(p *cli.Program, cmd *cobra.Command) {
	o.Spec.Add(p, cmd)
	o.Spec.AddCommand(cmd)
	o.wait.Add(cmd)
	AddPrivateState(p, cmd)
	o.CareFlags.Add(cmd)
}

// Parse checks those flags except --verify, which needs the machine.
func (o *RunOptions) Parse(p *cli.Program, cmd *cobra.Command, command []string) (spec job.Spec, care *job.Care, err error) {
	err = FillDefaults(p, cmd)
	if err != nil {
		return spec, nil, err
	}

	err = flagset.RefuseAssignment(cmd, command)
	if err != nil {
		return spec, nil, err
	}

	spec, care, err = o.readFlags(p, cmd, command)

	return spec, care, LocateDefault(p, err)
}

func (o *RunOptions) readFlags(p *cli.Program, cmd *cobra.Command, command []string) (spec job.Spec, care *job.Care, err error) {
	spec, err = ReadRequest(p, cmd, &o.Spec, command)
	if err != nil {
		return spec, nil, err
	}

	spec.Name = o.Name
	err = checkName(cmd, o.Name)
	if err != nil {
		return spec, nil, err
	}

	spec.Waiting, err = o.wait.Parse(p, cmd)
	if err != nil {
		return spec, nil, err
	}

	care, err = o.readCare(cmd, &spec)
	if err != nil {
		return spec, care, err
	}

	err = o.ReadRanks(cmd, &spec, o.JSON)

	return spec, care, err
}

// checkName refuses a --name that would break the lines in which it is shown.
func checkName(cmd *cobra.Command, name string) error {
	if !cmd.Flags().Changed("name") || len(name) <= 64 && regexp.MustCompile(`^[\pL\pN._/:@+-]+$`).MatchString(name) {
		return nil
	}
	return fmt.Errorf("cannot use --name %q: write letters, digits and . _ / : @ + -, at most 64 bytes", name)
}

// ApplyKeepWhile reads --keep-while. A holder process keeps the lease then, so keep refuses flags for which gpuard
// stays with the command. most is the time limit of a rule; the holder enforces it.
func (o *RunOptions) ApplyKeepWhile(cmd *cobra.Command, spec *job.Spec, care *job.Care, most time.Duration) error {
	spec.KeepWhile = o.KeepWhile
	switch {
	case o.KeepWhile == "":
		return nil
	case care != nil:
		return errors.New("cannot use --keep-while with --timeout, --retry, --log, --notify or --drift: gpuard is the parent of the command then, and the lease ends with gpuard; leave one of them out")
	case spec.Quota == job.MPS || spec.Require == job.MPS:
		return errors.New("cannot use --keep-while with --quota mps: the share's own daemon ends with the command; leave one of them out")
	}
	spec.Timeout = most

	return nil
}

// ReadVerify returns the settings of --verify; nil without it. If they are not possible it fails before the lease.
func (c *CareFlags) ReadVerify(p *cli.Program, cmd *cobra.Command) (*run.Oversight, error) {
	watch, err := c.ReadVerifyLater(p, cmd)
	if watch != nil && err == nil {
		err = run.CheckOversight()
	}
	return watch, err
}

// ReadVerifyLater is ReadVerify for a job that another process starts.
func (c *CareFlags) ReadVerifyLater(p *cli.Program, cmd *cobra.Command) (*run.Oversight, error) {
	if !cmd.Flags().Changed("verify") {
		return nil, nil //nolint:nilnil // not asked for
	}
	if value, ok := ValueAfterBlank(p, cmd.Flags().Args()); ok {
		return nil, failure.Usagef("cannot run %q: the time of --verify needs an equals sign: write --verify=%s; to run a command of that name: --verify -- %s", prose.Clean(cmd.Flags().Arg(0)), value, prose.Clean(cmd.Flags().Arg(0)))
	}

	return c.watch, verify.CheckVerifiable(p.Host)
}

// ValueAfterBlank finds a value of --verify that follows a space, which the parser takes for the command. It returns
// the value to write after an equals sign.
func ValueAfterBlank(p *cli.Program, command []string) (value string, ok bool) {
	if len(command) == 0 {
		return "", false
	}

	value = command[0]
	i := slices.Index(p.Args, "--verify")
	if i < 0 || i+1 >= len(p.Args) || p.Args[i+1] != value {
		return "", false
	}

	if _, err := strconv.ParseUint(value, 10, 32); err == nil {
		value += "s"
	}

	_, err := ReadOversight(value)

	return value, err == nil
}

// ReadOversight reads --verify: a time, the word stop, or both.
func ReadOversight(value string) (*run.Oversight, error) {
	o := &run.Oversight{Patience: 30 * time.Second}
	first, second, both := strings.Cut(value, ",")
	if !both && first == "stop" {
		first, second = "30s", "stop"
	}

	var err error
	o.Patience, err = flagset.ReadDuration("verify", first)
	if err != nil {
		return nil, err
	}

	o.Stop = second == "stop"
	if both && !o.Stop {
		return nil, fmt.Errorf("cannot read --verify=%s: only stop can follow the comma, such as --verify=30s,stop", value)
	}

	return o, nil
}
