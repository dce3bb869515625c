package handoff

import (
	"time"

	"gpuard/internal/core/job"
)

func lifeRows() []row {
	timed := func(w *Work) bool { return w.Spec.Timeout > 0 }
	untimed := of(func(w *Work) bool { return w.Spec.Timeout <= 0 })
	return []row{
		{"Spec.Time", "--expect", func(w *Work) bool { return w.Spec.Time > 0 }, inPods(
			approximate("a remark: Slurm plans by the limit, --timeout"), approximate("annotation gpuard/expect, by which nothing plans"), approximate("label gpuard.expect, by which nothing plans"))},
		{"Spec.Timeout", "--timeout", timed, inPods(
			approximate("--time, in whole minutes, rounded up").but("whole minutes, without --grace", of(func(w *Work) bool { return w.Spec.Timeout%time.Minute == 0 && w.Spec.Grace == 0 && w.Care.Stop == "" }), exact("--time")),
			approximate("activeDeadlineSeconds of each pod: from when a node takes it, so the pull of the image counts and waiting does not"),
			refused("Docker ends nothing after a time", "put it into the command: timeout 24h python train.py"))},
		{"Spec.Grace", "--grace", func(w *Work) bool { return w.Spec.Grace > 0 }, inPods(
			approximate("--signal to the command, up to a minute early; it is killed at --time, which is longer by this").but("no --timeout", untimed, approximate("Slurm's own KillWait between the signal and the kill")),
			exact("terminationGracePeriodSeconds"), exact("stop_grace_period"))},
		{"Care.Stop", "--stop-signal", func(w *Work) bool { return w.Care.Stop != "" }, inPods(
			approximate("--signal before the time limit; scancel sends its own").but("no --timeout", untimed, refused("without --timeout nothing sends it", "leave it out; scancel --signal sends one")),
			refused("the image says which signal ends it", "set STOPSIGNAL in the image"), exact("stop_signal"))},
		{"Spec.Nice", "--nice", func(w *Work) bool { return w.Spec.Nice != 0 }, inPods(
			approximate("--nice: among the jobs of all users").but("below 0", of(func(w *Work) bool { return w.Spec.Nice < 0 }), refused("only operators may raise a priority", "leave it out")),
			refused("priorities are classes that the cluster defines", "add priorityClassName to the pod"), refused("Docker starts everything at once", "leave it out"))},
		{"Care.Retries", "--retry", func(w *Work) bool { return w.Care.Retries > 0 }, inPods(
			approximate("--requeue: after each failure of its node, as often as that happens").but("N:any", of(func(w *Work) bool { return w.Care.Any }), refused("Slurm starts no failed job again", "leave :any out, or let the command repeat itself")),
			approximate("backoffLimit; only a pod that was evicted, or whose node failed, is started again, and no exit code says that the machine was at fault").but("N:any", of(func(w *Work) bool { return w.Care.Any }), exact("backoffLimit")),
			refused("Docker does not tell faults of the machine from others", "write N:any").but("N:any", of(func(w *Work) bool { return w.Care.Any }), exact("restart: on-failure:N")))},
		{"Care.Any", "--retry N:any", func(w *Work) bool { return w.Care.Any }, inPods(
			refused("Slurm starts no failed job again", "leave :any out, or let the command repeat itself"), exact("no podFailurePolicy"), exact("restart: on-failure:N"))},
		{"Care.Restart", "restart", func(w *Work) bool { return w.Care.Restart != job.NoRestart }, inPods(
			refused("Slurm starts no failed job again", "write restart: no"),
			approximate("backoffLimit, which counts all restarts and not those in a row").but("always", of(func(w *Work) bool { return w.Care.Restart == job.Always }), refused("a Job is done when its command ends with 0", "write restart: on-failure, or run it as a Deployment")),
			exact("restart"))},
		{"Care.Limit", "restart: on-failure:N", func(w *Work) bool { return w.Care.Limit > 0 }, inPods(
			refused("Slurm starts no failed job again", "write restart: no"), approximate("backoffLimit, which counts all restarts and not those in a row"),
			exact("restart: on-failure:N").but("always:N", of(func(w *Work) bool { return w.Care.Restart == job.Always }), refused("Docker limits no restarts after an end with 0", "write restart: always, or on-failure:N")))},
		{"Care.Streak", "restarts so far", func(w *Work) bool { return w.Care.Streak > 0 }, refused("it is a state of a run here", "hand in a new one").everywhere()},
		{"Care.Log", "--log", func(w *Work) bool { return w.Care.Log != "" }, inPods(
			exact("--output").but("characters that a directive cannot hold, or not absolute", of(oddLog), refused("a directive cannot hold such a path", "write an absolute path of letters, digits and . _ - / + = @")),
			refused("it is a file of this machine", "leave it out; kubectl logs shows the output"), refused("it is a file of this machine", "leave it out; docker compose logs shows the output"))},
		{"Care.LogLimit", "--log-limit", func(w *Work) bool { return w.Care.LogLimit > 0 }, refused("the engine keeps the output, and limits it by its own rules", "leave it out").everywhere()},
		{"Care.Drift", "--drift", func(w *Work) bool { return len(w.Care.Drift) > 0 }, refused("a job that an engine has placed cannot be moved to another GPU from outside", "leave it out; gpuard run --drift in the command does it where it has several").everywhere()},
		{"Verify", "--verify", func(w *Work) bool { return w.Verify != "" }, refused("gpuard watches processes of its own machine", "where gpuard is installed on the nodes or in the image, make it part of the command: -- gpuard run --verify -- ./program").everywhere()},
	}
}

func waitingRows() []row {
	return []row{
		{"Spec.Waiting.No", "--no-wait", func(w *Work) bool { return w.Spec.Waiting.No }, inPods(
			refused("sbatch queues what cannot start now", "leave it out; sbatch --test-only says when it could start"), refused("a pod waits until a node has room", "leave it out"), exact("Docker never waits"))},
		{"Spec.Waiting.Limit", "--wait", func(w *Work) bool { return w.Spec.Waiting.Limit > 0 }, inPods(
			refused("Slurm has no limit for waiting alone", "leave the time out; sbatch --deadline has one for waiting and running together"), refused("a pod waits as long as it takes", "leave the time out"), refused("Docker never waits", "leave it out"))},
		{"Spec.Waiting.Fallback", "--fallback", func(w *Work) bool {
			return len(w.Spec.Waiting.Fallback) > 0 && w.Spec.Waiting.Fallback[0] != "wait" // which is what engines do
		}, refused("the engine does not try something else in place of waiting", "leave it out, and hand it in again in the other form").everywhere()},
	}
}

func batchRows() []row {
	return []row{
		{"ID", "its ID", func(w *Work) bool { return w.ID != "" }, inPods(exact("--comment"), exact("end of the name"), exact("end of the project's name"))},
		{"Note", "--note", func(w *Work) bool { return w.Note != "" }, inPods(exact("a remark"), exact("annotation gpuard/note"), exact("label gpuard.note"))},
		{"Held", "--hold", func(w *Work) bool { return w.Held }, inPods(
			exact("--hold"), exact("suspend").but("with --queue", of(func(w *Work) bool { return w.Queue != "" }), refused("Kueue itself decides when a job of its queues is no longer suspended", "leave one of them out")),
			refused("Docker starts what it is given", "leave it out, and start it later"))},
		{"After", "--after", func(w *Work) bool { return len(w.After) > 0 }, inPods(
			exact("--dependency, and --kill-on-invalid-dep").but("not a number of a job of Slurm", of(oddAfter), refused("Slurm calls jobs by number", "write the number that sbatch printed, such as --after 1234")),
			refused("a Job does not wait for another one", "hand it in when that one has ended: kubectl wait --for=condition=complete job/NAME"),
			refused("Docker does not wait for a job of another project", "start it when that one has ended"))},
		{"Array.Tasks", "--array", func(w *Work) bool { return len(w.Array.Tasks) > 0 }, inPods(
			exact("--array; GPUARD_ARRAY_TASK is SLURM_ARRAY_TASK_ID"),
			exact("completions of an indexed Job; GPUARD_ARRAY_TASK is the index").but("numbers that do not begin at 0, or have gaps", of(func(w *Work) bool { return !counted(w.Array.Tasks) }), refused("an indexed Job counts from 0, without gaps", "write --array 0-N, and count in the command")),
			refused("Docker Compose has no arrays", "write a sweep: gpuard sweep"))},
		{"Array.Most", "--array …%N", func(w *Work) bool { return w.Array.Most > 0 }, inPods(exact("--array=…%N"), exact("parallelism"), refused("Docker Compose has no arrays", "write a sweep: gpuard sweep"))},
		{"Care.Notify", "--notify", func(w *Work) bool { return w.Care.Notify != "" }, inPods(
			refused("Slurm sends mail and nothing else", "leave it out, or add it: sbatch --mail-type=END --mail-user=YOU"), refused("Kubernetes tells nobody", "leave it out; kubectl wait returns at the end"), refused("Docker tells nobody", "leave it out; docker compose wait returns at the end"))},
		{"Namespace", "--namespace", func(w *Work) bool { return w.Namespace != "" }, inPods(
			refused("Slurm has no namespaces", "leave it out"), exact("metadata.namespace").but("not a name of one", of(func(w *Work) bool { return !dnsLabel(w.Namespace) }), refused("that is no name of a namespace", "write lower case letters, digits and -")), refused("Docker has no namespaces", "leave it out"))},
		{"Queue", "--queue", func(w *Work) bool { return w.Queue != "" }, inPods(
			exact("--partition").but("characters that a directive cannot hold", of(func(w *Work) bool { return word(w.Queue) != w.Queue }), refused("that is no name of a partition", "sinfo lists them")),
			exact("label kueue.x-k8s.io/queue-name").but("not a name of one", of(func(w *Work) bool { return !dnsLabel(w.Queue) }), refused("that is no name of a queue", "kubectl get localqueues lists them")), refused("Docker has no queues", "leave it out"))},
	}
}

func serviceRows() []row {
	alone := refused("one service is written at a time, and nothing starts another one before it", "leave it out, and start that one first").everywhere()
	return []row{
		{"Service.Each", "each", func(w *Work) bool { return w.Service.Each }, refused("it means the GPUs of this machine", "write gpus: N, or an array: gpuard export … --array 0-7").everywhere()},
		{"Service.Replicas", "replicas", func(w *Work) bool { return w.Service.Replicas > 1 }, refused("each instance has a command of its own", "write one service for each, or an array: gpuard export … --array 0-7").everywhere()},
		{"Service.DependsOn", "depends_on", func(w *Work) bool { return len(w.Service.DependsOn) > 0 }, alone},
		{"Service.EnvFiles", "env_file", func(w *Work) bool { return len(w.Service.EnvFiles) > 0 }, approximate("the values that its files have now are in the text, for everybody who may read it").everywhere()},
		{"Service.Ready", "ready", func(w *Work) bool { return w.Service.Ready }, approximate("not checked: no service here waits for it").everywhere()},
		{"Service.Healthy", "healthy", func(w *Work) bool { return w.Service.Healthy }, refused("the engine would not check it in the way of the file", "leave it out, and add the engine's own check").everywhere()},
	}
}
