package run

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/app/exit"
	"gpuard/internal/app/machine"
	"gpuard/internal/core/job"
	"gpuard/internal/core/ranks"
	"gpuard/internal/core/visible"
	"gpuard/internal/host/affinity"
	"gpuard/internal/host/launch"
	"gpuard/internal/host/port"
	"gpuard/internal/host/proctree"
)

// StartRanks is the life of a process that starts ranks, or becomes one. It returns only where something could not be
// started. args are the flag and the command.
func StartRanks(host *machine.Host, args []string) error {
	text, _ := host.Env.Lookup(ranks.Variable)
	crew, err := ranks.Decode(text)
	if err != nil {
		return &exit.Usage{Text: err.Error()}
	}

	host.Env = host.Env.With([]visible.Var{{Name: ranks.Variable, Unset: true}})

	switch flag, command := args[0], args[1:]; {
	case flag == machine.RanksFlag && len(command) > 0:
		return leadRanks(host, crew, command)
	case flag == machine.RankFlag && len(command) > 1:
		return becomeRank(host, crew, command)
	}

	return exit.Usagef("cannot start ranks without a command: gpuard run --ranks -- COMMAND")
}

// becomeRank binds this process, which torchrun started, and becomes the program of the rank.
func becomeRank(host *machine.Host, crew ranks.Crew, command []string) error {
	rank, _ := host.Env.Lookup("LOCAL_RANK")
	m, err := crew.Member(rank)
	if err != nil {
		return &exit.Usage{Text: err.Error()}
	}

	argv := command[1:]
	if command[0] == ranks.Python {
		argv = append([]string{pythonAbove(host)}, argv...)
	}

	path, err := launch.FindCommand(argv[0])
	if err != nil {
		return err
	}

	if rank == "0" {
		// It is only a hint.
		_ = startJoinWatch(crew)
	}

	cpus, _ := ranks.ParseCPUs(m.CPUs)

	// Where that is not allowed, it runs anywhere.
	_ = affinity.BindThread(cpus, m.Node)

	return launch.Exec(path, argv, host.Env.With(m.Vars), nil, -1, nil)
}

// pythonAbove is the Python that torchrun runs in, under the name that it was started by: by that it finds its
// environment, and torchrun would start its processes with it (sys.executable, or PYTHON_EXEC).
func pythonAbove(host *machine.Host) string {
	if chosen, _ := host.Env.Lookup("PYTHON_EXEC"); chosen != "" {
		return chosen
	}

	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(os.Getppid()), "cmdline"))
	name, _, _ := strings.Cut(string(line), "\x00")
	if err != nil || name == "" {
		return "python3"
	}

	return name
}

// leadRanks starts the processes of a crew and stays with them. It ends as the first that failed.
func leadRanks(host *machine.Host, crew ranks.Crew, command []string) error {
	path, err := launch.FindCommand(command[0])
	if err != nil {
		return err
	}

	port.SetInherit(crew.FD, false)
	c := launch.Command{Path: path, Argv: command}.NewChildGroup(len(crew.Members))

	// Asked for its members when no rank is left.
	family := proctree.AdoptOrphans(c.OwnsProcess, c.OwnsProcess, nil)

	for i, m := range crew.Members {
		cpus, _ := ranks.ParseCPUs(m.CPUs)
		err := affinity.CallBound(cpus, m.Node, func() error { return c.Start(i, host.Env.With(crew.Env(i))) })
		if err != nil {
			c.SendSignal("SIGKILL")
			for range i {
				<-c.Ended()
			}
			return err
		}
	}

	over := make(chan struct{})
	go joinWatch{host, crew, c.Running, 0, os.Stderr}.watchRanks(over)
	failed, ended := awaitRanks(crew, c)
	close(over)
	if ended {
		// A program that a killed shell leaves behind would keep its devices.
		grace, over := context.WithTimeout(context.Background(), crew.Grace)
		err = family.End(grace, "SIGTERM", job.KillGrace)
		over()
	}

	family.StopReaping()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gpuard: "+err.Error())
	}

	c.ExitAs(failed)

	return nil
}

// rankEnd is the JSON line about a rank that failed.
type rankEnd struct {
	// "gpuard.run-rank/1".
	Schema string `json:"schema"`
	Rank   int    `json:"rank"` // which
	PID    int    `json:"pid"`  // that it had
	// Its exit code; -1 when a signal ended it.
	Code int `json:"exit"`
	// That ended it: "SIGKILL"; "" none.
	Signal string `json:"signal"`
	// How many are ended because of it.
	Others int `json:"others"`
}

// reportRank says on standard error, which belongs to the ranks too, that one failed.
func reportRank(e launch.ChildEnd, others int, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(os.Stderr).Encode(rankEnd{"gpuard.run-rank/1", e.Number, e.PID, e.Code, e.Signal, others})
		return
	}

	how := fmt.Sprintf("with exit code %d", e.Code)
	if e.Signal != "" {
		how = "by " + e.Signal
	}

	rest := ""
	switch others {
	case 0:
	case 1:
		rest = "; ending the other one"
	default:
		rest = fmt.Sprintf("; ending the other %d", others)
	}

	fmt.Fprintf(os.Stderr, "gpuard: rank %d (PID %d) ended %s%s\n", e.Number, e.PID, how, rest)
}

// awaitRanks waits for all ranks. When one fails, it ends the others, unless a signal has asked them to end already;
// then it makes sure that they do. It returns the first rank that failed, else any, and whether it ended others.
func awaitRanks(crew ranks.Crew, c *launch.ChildGroup) (failed launch.ChildEnd, others bool) {
	var over <-chan time.Time
	for left := len(crew.Members); left > 0; {
		select {
		case e := <-c.Ended():
			left--
			if failed.Failed() || !e.Failed() {
				continue
			}
			failed, over = e, time.After(crew.Grace)
			if !c.HasSignalSince(time.Now().Add(-max(crew.Grace, time.Second))) {
				others = true
				reportRank(e, left, crew.JSON)
				c.SendSignal("SIGTERM")
				c.SendSignal("SIGCONT")
			}
		case <-over:
			others = true
			c.SendSignal("SIGKILL")
		}
	}
	return failed, others
}
