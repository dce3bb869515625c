// Package slurmout reads what Slurm's commands print, in the formats that host/slurmcmd asks for. It runs nothing. Text is read
// and not JSON, because the JSON of these commands changed from one release to the next.
package slurmout

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/batchlog"
)

// Formats of what is read here. A field that may hold anything stands last.
const (
	// Of squeue, for Queue.
	QueueFormat = "%i|%T|%r|%N|%S|%k"
	// Of sinfo, for Partitions.
	PartitionFormat = "%R|%P|%a|%l|%D"
	// Of sacct --parsable2, for Past.
	PastFields = "JobID,State,ExitCode,Start,End,NodeList"
)

// Job is a job as the cluster describes it.
type Job struct {
	// "12", of an array "12_3".
	ID    string
	State string // Slurm's own word
	// Likewise; "" nothing.
	Reason string
	Node   string
	Mark   string // its comment
	Began  *time.Time
	Ended  *time.Time
	Exit   int
	// That ended it; 0 none.
	Signal int
}

// ParseQueue reads lines of squeue.
func ParseQueue(text string, zone *time.Location) (jobs []Job, err error) {
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), "|", 6)
		if len(f) != 6 || f[0] == "" || f[1] == "" {
			return nil, fmt.Errorf("squeue printed %q", line)
		}
		j := Job{ID: f[0], State: f[1], Reason: emptyIfNone(f[2]), Node: emptyIfNone(f[3]), Began: parseTime(f[4], zone), Mark: emptyIfNone(f[5])}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// ParsePast reads lines of sacct.
func ParsePast(text string, zone *time.Location) (jobs []Job, err error) {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimRight(line, "\n"), "|")
		if len(f) != 6 {
			return nil, fmt.Errorf("sacct printed %q", line)
		}

		// "CANCELLED by 1000".
		state, _, _ := strings.Cut(f[1], " ")
		j := Job{ID: f[0], State: state, Node: emptyIfNone(strings.TrimSuffix(f[5], "None assigned")), Began: parseTime(f[3], zone), Ended: parseTime(f[4], zone)}
		j.Exit, j.Signal, err = parseExit(f[2])
		if err != nil {
			return nil, fmt.Errorf("sacct printed %q", line)
		}

		jobs = append(jobs, j)
	}
	return jobs, nil
}

// ParseDetails reads lines of scontrol -o show job. An array has a line for each task that has started, and one for the rest.
func ParseDetails(text string, zone *time.Location) (jobs []Job, err error) {
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		j, err := parseDetail(line, zone)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

func parseDetail(line string, zone *time.Location) (j Job, err error) {
	head, rest, _ := strings.Cut(line, " JobName=")

	// What stands between is the owner's.
	_, rest, _ = strings.Cut(rest, " MCS_label=")
	value, names := parseFields(rest), parseFields(head)
	j = Job{State: value["JobState"], Reason: emptyIfNone(value["Reason"]), Node: emptyIfNone(value["NodeList"]), Began: parseTime(value["StartTime"], zone), Ended: parseTime(value["EndTime"], zone)}
	j.ID = names["JobId"]
	if names["ArrayTaskId"] != "" {
		j.ID = names["ArrayJobId"] + "_" + names["ArrayTaskId"]
	}

	j.Exit, j.Signal, err = parseExit(value["ExitCode"])
	if err != nil || j.State == "" {
		return j, fmt.Errorf("scontrol printed %q", line)
	}

	return j, nil
}

// parseFields reads "Name=value Name=value"; of two with one name the first counts.
func parseFields(line string) map[string]string {
	all := map[string]string{}
	for _, word := range strings.Fields(line) {
		if name, value, ok := strings.Cut(word, "="); ok && all[name] == "" {
			all[name] = value
		}
	}
	return all
}

// parseExit reads "3:0": the exit code and the signal.
func parseExit(text string) (code, signal int, err error) {
	first, second, ok := strings.Cut(text, ":")
	code, err = strconv.Atoi(first)
	if err == nil && ok {
		signal, err = strconv.Atoi(second)
	}

	return code, signal, err
}

// emptyIfNone is a word that Slurm wrote for nothing, as nothing.
func emptyIfNone(word string) string {
	switch word {
	case "(null)", "N/A", "None", "n/a", "Unknown":
		return ""
	}
	return word
}

// parseTime reads "2026-11-24T23:18:50", which has no zone.
func parseTime(text string, zone *time.Location) *time.Time {
	t, err := time.ParseInLocation("2006-01-02T15:04:05", text, zone)
	if err != nil {
		return nil
	}
	return &t
}

// ToAway is the job in the words of gpuard. Its exit code, or the signal that ended it, is in the job.
func (j Job) ToAway() batchlog.Away {
	a := batchlog.Away{ID: j.ID, Node: j.Node, Began: j.Began}
	switch j.State {
	case "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT":
		// A time that Slurm expects.
		a.State, a.Began = batchlog.Queued, nil
		if strings.HasPrefix(j.Reason, "JobHeld") || strings.HasSuffix(j.State, "_HOLD") {
			a.State = batchlog.Stopped
		}
		a.Why = waitReason(j.Reason)
	case "COMPLETED":
		a.State = batchlog.Finished
	case "CANCELLED":
		a.State = batchlog.Ended
	case "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE", "PREEMPTED", "LAUNCH_FAILED", "RECONFIG_FAIL":
		a.State, a.Why = batchlog.Broken, failureTexts()[j.State]
	case "REVOKED":
		a.State, a.Why = batchlog.Unknown, "another cluster of the federation has it"
	default:
		// RUNNING, COMPLETING, CONFIGURING, SUSPENDED, and what a later Slurm adds.
		a.State = batchlog.Active
		if j.State != "RUNNING" && j.State != "COMPLETING" {
			a.Why = strings.ToLower(j.State)
		}
	}
	return a
}

// failureTexts are endings that are not the command's own (squeue(1), JOB STATE CODES).
func failureTexts() map[string]string {
	return map[string]string{
		"TIMEOUT":       "ended after its time was over (TIMEOUT)",
		"NODE_FAIL":     "its node failed (NODE_FAIL)",
		"OUT_OF_MEMORY": "it used more memory of the node than it was given (OUT_OF_MEMORY): sbatch --mem",
		"BOOT_FAIL":     "its node did not start (BOOT_FAIL)",
		"DEADLINE":      "its deadline had passed (DEADLINE)",
		"PREEMPTED":     "ended for a job that goes first (PREEMPTED)",
		"LAUNCH_FAILED": "Slurm could not start it (LAUNCH_FAILED)",
	}
}

// waitReason is a reason for which a job waits, with Slurm's own word (squeue(1), JOB REASON CODES).
func waitReason(reason string) string {
	text := map[string]string{
		"Resources":                   "the nodes that it could run on are busy",
		"Priority":                    "jobs with a higher priority go first",
		"Dependency":                  "it runs after another job",
		"DependencyNeverSatisfied":    "the job that it runs after did not end well, so it never starts",
		"JobHeldUser":                 "its owner holds it: gpuard queue unhold",
		"JobHeldAdmin":                "an administrator holds it",
		"BeginTime":                   "it was asked to start later, or was put back",
		"JobArrayTaskLimit":           "as many of its array run as may at the same time",
		"PartitionDown":               "its partition takes no jobs",
		"PartitionInactive":           "its partition starts no jobs",
		"PartitionTimeLimit":          "it asks for more time than its partition gives",
		"PartitionNodeLimit":          "it asks for more nodes than its partition gives",
		"ReqNodeNotAvail":             "a node that it needs is down, drained or reserved",
		"BadConstraints":              "no node has what it asks for",
		"Licenses":                    "it waits for a license",
		"Reservation":                 "it waits for its reservation",
		"launch_failed_requeued_held": "Slurm could not start it, and holds it",
	}[strings.TrimSuffix(reason, ",")]
	switch {
	case reason == "":
		return ""
	case text != "":
	case strings.HasPrefix(reason, "QOS"), strings.HasPrefix(reason, "Assoc"), strings.HasPrefix(reason, "Max"):
		text = "a limit of its account or quality of service is reached"
	default:
		return reason
	}
	return text + " (" + reason + ")"
}
