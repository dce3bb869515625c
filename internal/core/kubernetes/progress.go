package kubernetes

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpuard/internal/core/option"
)

// Phase is where a job is.
type Phase string

// Phases of a job.
const (
	Waiting Phase = "waiting"
	Running Phase = "running"
	// Its command ended with 0.
	Done Phase = "done"
	// It ended otherwise, or was not run.
	Failed Phase = "failed"
)

// Over reports whether the job has ended.
func (p Phase) Over() bool { return p == Done || p == Failed }

// Reason is why a job waits or has failed.
type Reason struct {
	// A stable word: "quota", "no-gpu", "too-many", "labels", "taint", "image", ….
	Code string `json:"code"`
	Text string `json:"text"` // in one sentence
	// What to type next; "" nothing.
	Do string `json:"do"`
}

// Progress is what a cluster says about a job now.
type Progress struct {
	Phase Phase
	// Exit code of its command; nil while there is none.
	Exit *int
	Why  *Reason
	// That runs it, or ran it last; "" none yet.
	Pod     string
	Node    string // "" none yet
	Started *time.Time
	Ended   *time.Time
}

// timeoutExitCode is the exit code of a job that its limit ended, as timeout(1) and gpuard run give it.
const timeoutExitCode = 124

// deadlineReason is the reason of a Job, or of a pod, that ran for longer than activeDeadlineSeconds.
const deadlineReason = "DeadlineExceeded"

// JobProgress says where a job is. pods and events are those of the job; nodes may be nil: then the largest node is
// unknown.
func JobProgress(j *Job, pods []Pod, events []Event, nodes []Node) Progress {
	p := Progress{Phase: Waiting, Started: j.Status.Started, Ended: j.Status.Completed}
	pod := youngestPod(pods)
	var end *containerEnd
	if pod != nil {
		p.Pod, p.Node = pod.Meta.Name, pod.Spec.Node
		end = p.readPod(pod)
	}

	failed := trueCondition(j.Status.Conditions, "Failed")
	switch {
	case trueCondition(j.Status.Conditions, "Complete") != nil:
		p.Phase = Done
		p.Exit = cmp.Or(p.Exit, new(int))
	case failed != nil && (failed.Reason == deadlineReason || pod != nil && pod.Status.Reason == deadlineReason):
		// Its pods may be deleted: then nobody can ask for their exit code.
		p.Phase, p.Exit = Failed, new(timeoutExitCode)
		p.Why = &Reason{"time", "it was ended by its limit of time", option.Expand("hand it in with a longer {timeout}")}
	case failed != nil:
		p.Phase = Failed
		p.Why = endingReason(pod, end)
		if p.Why == nil && end == nil {
			p.Why = &Reason{"failed", cmp.Or(failed.Message, failed.Reason, "the cluster says that it failed, and no more"), ""}
		}
	case end != nil:
		// The controller has not counted it yet.
	default:
		p.setWaitReason(j, pod, events, nodes)
	}

	return p
}

// TaskProgress is JobProgress for one number of an indexed Job.
func TaskProgress(j *Job, task int, pods []Pod, events []Event, nodes []Node) Progress {
	own := slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return p.Meta.Labels[indexLabel] != strconv.Itoa(task) })
	one := *j
	verdict := ""
	switch {
	case listHasNumber(j.Status.Succeeded, task):
		verdict = "Complete"
	case listHasNumber(j.Status.Failed, task):
		verdict = "Failed"
	}

	if verdict != "" || trueCondition(j.Status.Conditions, "Failed") == nil {
		// Else all that has not ended was ended with the Job.
		one.Status.Conditions = nil
	}

	if verdict != "" {
		one.Status.Conditions = []Condition{{Type: verdict, Status: "True"}}
	}

	one.Status.Started, one.Status.Completed = nil, nil

	return JobProgress(&one, own, events, nodes)
}

// listHasNumber reports whether a list such as "0,3-5" has a number.
func listHasNumber(list string, number int) bool {
	for word := range strings.SplitSeq(list, ",") {
		first, last, span := strings.Cut(word, "-")
		from, err := strconv.Atoi(first)
		to := from
		if span && err == nil {
			to, err = strconv.Atoi(last)
		}

		if err == nil && from <= number && number <= to {
			return true
		}
	}
	return false
}

// readPod reads what the pod says itself, and returns its end if it has one.
func (p *Progress) readPod(pod *Pod) *containerEnd {
	for _, c := range pod.Status.Containers {
		switch {
		case c.Name != Main:
			// Something of the cluster beside it, such as a proxy.
		case c.State.Ended != nil:
			e := c.State.Ended
			p.Phase, p.Exit = Running, new(e.Exit)
			p.Started, p.Ended = cmp.Or(e.Started, p.Started), cmp.Or(e.Finished, p.Ended)

			return e
		case c.State.Running != nil:
			p.Phase, p.Started = Running, new(c.State.Running.Started)
		}
	}
	return nil
}

// youngestPod is the pod that tells most: of several the youngest.
func youngestPod(pods []Pod) *Pod {
	if len(pods) == 0 {
		return nil
	}
	last := slices.MaxFunc(pods, func(a, b Pod) int {
		return cmp.Or(a.Meta.Created.Compare(b.Meta.Created), cmp.Compare(a.Meta.Name, b.Meta.Name))
	})
	return &last
}

// endingReason says what was wrong beside an exit code; nil: nothing.
func endingReason(pod *Pod, e *containerEnd) *Reason {
	switch {
	case e != nil && e.Reason == "OOMKilled":
		return &Reason{"memory", "it used more main memory than it was given, and was killed", "give it more: resources.limits.memory"}
	case pod == nil:
		return nil
	case pod.Status.Reason == "UnexpectedAdmissionError":
		// kubelet: a device that the scheduler gave is not there.
		return &Reason{"node", "the node " + pod.Spec.Node + " could not give it the devices: " + pod.Status.Message, option.Expand("hand it in again; {gpuard doctor} {engine=kubernetes}")}
	case pod.Status.Reason != "" && pod.Status.Reason != "Completed" && pod.Status.Reason != "Error":
		return &Reason{"node", strings.ToLower(pod.Status.Reason) + " by the cluster: " + cmp.Or(pod.Status.Message, "it says no more"), "hand it in again"}
	case trueCondition(pod.Status.Conditions, "DisruptionTarget") != nil:
		c := trueCondition(pod.Status.Conditions, "DisruptionTarget")
		return &Reason{"node", fmt.Sprintf("ended by the cluster (%s): %s", c.Reason, c.Message), "hand it in again"}
	}
	return nil
}
