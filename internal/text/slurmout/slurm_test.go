package slurmout

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpuard/internal/core/batchlog"
)

func TestQueue(t *testing.T) {
	jobs, err := ParseQueue("7|RUNNING|None|n1|2026-11-24T23:18:33|(null)\n9_3|PENDING|Resources||N/A|gpuard-ab|c\n12|PENDING|JobHeldUser||N/A|(null)\n13|TIMEOUT|TimeLimit|n1|2026-11-24T23:18:33|x\n14|SUSPENDED|None|n2|2026-11-24T23:18:33|\n", time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, j := range jobs {
		a := j.ToAway()
		got = append(got, fmt.Sprintf("%s %s %q %s %q %v", a.ID, a.State, a.Why, a.Node, j.Mark, a.Began != nil))
	}
	want := []string{
		`7 active "" n1 "" true`, `9_3 queued "the nodes that it could run on are busy (Resources)"  "gpuard-ab|c" false`,
		`12 held "its owner holds it: gpuard queue unhold (JobHeldUser)"  "" false`, `13 broken "ended after its time was over (TIMEOUT)" n1 "x" true`, `14 active "suspended" n2 "" true`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, bad := range []string{"squeue: error", "1|RUNNING|None\n", "|RUNNING||||\n"} {
		if jobs, err := ParseQueue(bad, time.UTC); err == nil {
			t.Errorf("%q: %v", bad, jobs)
		}
	}
}

// TestStates: only what Slurm calls completed is a success, and an unknown word is no end.
func TestStates(t *testing.T) {
	for word, want := range map[string]batchlog.EngineState{"COMPLETED": batchlog.Finished, "COMPLETING": batchlog.Active, "CANCELLED": batchlog.Ended, "FAILED": batchlog.Broken, "NODE_FAIL": batchlog.Broken, "OUT_OF_MEMORY": batchlog.Broken,
		"PREEMPTED": batchlog.Broken, "REQUEUED": batchlog.Queued, "REQUEUE_HOLD": batchlog.Stopped, "REVOKED": batchlog.Unknown, "A_NEW_WORD": batchlog.Active} {
		if got := (Job{State: word}).ToAway().State; got != want {
			t.Errorf("%s is %s, want %s", word, got, want)
		}
	}
	for reason, want := range map[string]string{"QOSMaxGRESPerUser": "a limit of its account or quality of service is reached (QOSMaxGRESPerUser)", "Something": "Something"} {
		if got := (Job{State: "PENDING", Reason: reason}).ToAway().Why; got != want {
			t.Errorf("%s: %q", reason, got)
		}
	}
}

// TestDetails: a name of the owner cannot pass for what Slurm says.
func TestDetails(t *testing.T) {
	const line = "JobId=12 ArrayJobId=9 ArrayTaskId=2 JobName=x JobState=COMPLETED ExitCode=0:0 UserId=ann(1) GroupId=ann(1) MCS_label=N/A Priority=1 JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=2:0 " +
		"RunTime=00:00:02 StartTime=2026-11-24T23:18:48 EndTime=2026-11-24T23:18:50 NodeList=n1 Comment=a ExitCode=0:0 \n"
	jobs, err := ParseDetails(line+"JobId=7 JobName=wrap UserId=root(0) GroupId=root(0) MCS_label=N/A JobState=CANCELLED Reason=None ExitCode=0:15 StartTime=2026-11-24T23:18:33 EndTime=2026-11-24T23:18:47 NodeList=n1 \n", time.UTC)
	if err != nil || len(jobs) != 2 {
		t.Fatal(jobs, err)
	}
	if j := jobs[0]; j.ID != "9_2" || j.State != "FAILED" || j.Exit != 2 || j.Signal != 0 || j.Ended.Sub(*j.Began) != 2*time.Second {
		t.Errorf("%+v", j)
	}
	if j := jobs[1]; j.ID != "7" || j.State != "CANCELLED" || j.Exit != 0 || j.Signal != 15 {
		t.Errorf("%+v", j)
	}
	if jobs, err := ParseDetails("slurm_load_jobs error\n", time.UTC); err == nil {
		t.Errorf("%+v", jobs)
	}
}

func TestPast(t *testing.T) {
	jobs, err := ParsePast("7|CANCELLED by 1000|0:15|2026-11-24T23:18:33|2026-11-24T23:18:47|n1\n8|CANCELLED by 1000|0:0|None|2026-11-24T23:18:47|None assigned\n9_2|COMPLETED|0:0|2026-11-24T23:18:33|2026-11-24T23:18:47|n1\n", time.UTC)
	if err != nil || len(jobs) != 3 || jobs[0].State != "CANCELLED" || jobs[0].Signal != 15 || jobs[1].Node != "" || jobs[1].Began != nil || jobs[2].ToAway().State != batchlog.Finished {
		t.Errorf("%+v %v", jobs, err)
	}
}

func TestNodes(t *testing.T) {
	nodes, err := ParseNodes("NodeName=n1 CoresPerSocket=1 ActiveFeatures=gpumem80g,a100 Gres=gpu:a100:4(S:0-1),gpu:1g.10gb:7,mps:400 GresUsed=gpu:a100:2(IDX:0,2),gpu:1g.10gb:0(IDX:N/A),mps:0 OS=Linux 6.1 #1 SMP State=MIXED+PLANNED Partitions=all,long BootTime=x \n" +
		"NodeName=n2 ActiveFeatures=(null) Gres=gpu:2 GresUsed=gpu:(null):1(IDX:0) State=IDLE+DRAIN Partitions=all Reason=gres/gpu count reported lower than configured (1 < 2) [root@2026-11-24T23:18:33] \n" +
		"NodeName=n3 ActiveFeatures=(null) Gres=(null) GresUsed=(null) State=DOWN* Partitions=all \n")
	if err != nil || len(nodes) != 3 {
		t.Fatal(nodes, err)
	}
	got := fmt.Sprint(nodes)
	want := "[{n1 [MIXED PLANNED]  [gpumem80g a100] [all long] [{a100 4 2} {1g.10gb 7 0}]} {n2 [IDLE DRAIN] gres/gpu count reported lower than configured (1 < 2) [root@2026-11-24T23:18:33] [] [all] [{ 2 1}]} {n3 [DOWN NOT_RESPONDING]  [] [all] []}]"
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for i, usable := range []bool{true, false, false} {
		if nodes[i].IsUsable() != usable {
			t.Errorf("%s: usable %v", nodes[i].Name, !usable)
		}
	}
}

func TestPartitions(t *testing.T) {
	all, err := ParsePartitions("all|all*|up|infinite|1\nall|all*|up|infinite|2\nlong|long|down|7-00:00:00|3\n")
	if got := fmt.Sprint(all, err); got != "[{all true up infinite 3} {long false down 7-00:00:00 3}] <nil>" {
		t.Error(got)
	}
}

// FuzzSlurm: no text of a command panics.
func FuzzSlurm(f *testing.F) {
	f.Add("7|RUNNING|None|n1|2026-11-24T23:18:33|(null)\n")
	f.Add("NodeName=n1 Gres=gpu:a100:4(S:0-1),gpu GresUsed=gpu:a100:2(IDX:0,2) State=IDLE\n")
	f.Add("JobId=1 JobName=x MCS_label=N/A JobState=FAILED ExitCode=2:0\n")
	f.Add("all|all*|up|infinite|1\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func(string, *time.Location) ([]Job, error){ParseQueue, ParsePast, ParseDetails} {
			jobs, _ := read(text, time.UTC)
			for _, j := range jobs {
				if j.ToAway().State == "" {
					t.Errorf("%+v has no state", j)
				}
			}
		}
		_, _ = ParseNodes(text)
		_, _ = ParsePartitions(text)
		_ = ParseSettings(text)
	})
}
