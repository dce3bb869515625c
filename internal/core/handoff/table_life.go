package handoff

import (
	"time"

	"gpuard/internal/core/job"
)

func lifeRows() []row {
	timed := func(w *Work) bool { return w.Spec.Timeout > 0 }
	untimed := ignoreSite(func(w *Work) bool { return w.Spec.Timeout <= 0 })
	return []row{
		{"Spec.Time", "{expect}", func(w *Work) bool { return w.Spec.Time > 0 }, inPods(
			approximateCell("a remark: Slurm plans by the limit, {timeout}"), approximateCell("annotation gpuard/expect, by which nothing plans"), approximateCell("label gpuard.expect, by which nothing plans"))},
		{"Spec.Timeout", "{timeout}", timed, inPods(
			approximateCell("--time, in whole minutes, rounded up").withException("whole minutes, without {grace}", ignoreSite(func(w *Work) bool { return w.Spec.Timeout%time.Minute == 0 && w.Spec.Grace == 0 && w.Care.Stop == "" }), exactCell("--time")),
			approximateCell("activeDeadlineSeconds of each pod: from when a node takes it, so the pull of the image counts and waiting does not"),
			refusedCell("Docker ends nothing after a time", "put it into the command: timeout 24h python train.py"))},
		{"Spec.Grace", "{grace}", func(w *Work) bool { return w.Spec.Grace > 0 }, inPods(
			approximateCell("--signal to the command, up to a minute early; it is killed at --time, which is longer by this").withException("no {timeout}", untimed, approximateCell("Slurm's own KillWait between the signal and the kill")),
			exactCell("terminationGracePeriodSeconds"), exactCell("stop_grace_period"))},
		{"Care.Stop", "{stop-signal}", func(w *Work) bool { return w.Care.Stop != "" }, inPods(
			approximateCell("--signal before the time limit; scancel sends its own").withException("no {timeout}", untimed, refusedCell("without {timeout} nothing sends it", "leave it out; scancel --signal sends one")),
			refusedCell("the image says which signal ends it", "set STOPSIGNAL in the image"), exactCell("stop_signal"))},
		{"Spec.Nice", "{nice}", func(w *Work) bool { return w.Spec.Nice != 0 }, inPods(
			approximateCell("--nice: among the jobs of all users").withException("below 0", ignoreSite(func(w *Work) bool { return w.Spec.Nice < 0 }), refusedCell("only operators may raise a priority", "leave it out")),
			refusedCell("priorities are classes that the cluster defines", "add priorityClassName to the pod"), refusedCell("Docker starts everything at once", "leave it out"))},
		{"Care.Retries", "{retry}", func(w *Work) bool { return w.Care.Retries > 0 }, inPods(
			approximateCell("--requeue: after each failure of its node, as often as that happens").withException("N:any", ignoreSite(func(w *Work) bool { return w.Care.Any }), refusedCell("Slurm starts no failed job again", "leave :any out, or let the command repeat itself")),
			approximateCell("backoffLimit; only a pod that was evicted, or whose node failed, is started again, and no exit code says that the machine was at fault").withException("N:any", ignoreSite(func(w *Work) bool { return w.Care.Any }), exactCell("backoffLimit")),
			refusedCell("Docker does not tell faults of the machine from others", "write N:any").withException("N:any", ignoreSite(func(w *Work) bool { return w.Care.Any }), exactCell("restart: on-failure:N")))},
		{"Care.Any", "{retry=N:any}", func(w *Work) bool { return w.Care.Any }, inPods(
			refusedCell("Slurm starts no failed job again", "leave :any out, or let the command repeat itself"), exactCell("no podFailurePolicy"), exactCell("restart: on-failure:N"))},
		{"Care.Restart", "restart", func(w *Work) bool { return w.Care.Restart != job.NoRestart }, inPods(
			refusedCell("Slurm starts no failed job again", "write restart: no"),
			approximateCell("backoffLimit, which counts all restarts and not those in a row").withException("always", ignoreSite(func(w *Work) bool { return w.Care.Restart == job.Always }), refusedCell("a Job is done when its command ends with 0", "write restart: on-failure, or run it as a Deployment")),
			exactCell("restart"))},
		{"Care.Limit", "restart: on-failure:N", func(w *Work) bool { return w.Care.Limit > 0 }, inPods(
			refusedCell("Slurm starts no failed job again", "write restart: no"), approximateCell("backoffLimit, which counts all restarts and not those in a row"),
			exactCell("restart: on-failure:N").withException("always:N", ignoreSite(func(w *Work) bool { return w.Care.Restart == job.Always }), refusedCell("Docker limits no restarts after an end with 0", "write restart: always, or on-failure:N")))},
		{"Care.Streak", "restarts so far", func(w *Work) bool { return w.Care.Streak > 0 }, refusedCell("it is a state of a run here", "hand in a new one").forAllTargets()},
		{"Care.Log", "{log}", func(w *Work) bool { return w.Care.Log != "" }, inPods(
			exactCell("--output").withException("characters that a directive cannot hold, or not absolute", ignoreSite(hasOddLog), refusedCell("a directive cannot hold such a path", "write an absolute path of letters, digits and . _ - / + = @")),
			refusedCell("it is a file of this machine", "leave it out; kubectl logs shows the output"), refusedCell("it is a file of this machine", "leave it out; docker compose logs shows the output"))},
		{"Care.LogLimit", "{log-limit}", func(w *Work) bool { return w.Care.LogLimit > 0 }, refusedCell("the engine keeps the output, and limits it by its own rules", "leave it out").forAllTargets()},
		{"Care.Drift", "{drift}", func(w *Work) bool { return len(w.Care.Drift) > 0 }, refusedCell("a job that an engine has placed cannot be moved to another GPU from outside", "leave it out; {gpuard run} {drift} in the command does it where it has several").forAllTargets()},
		{"Verify", "{verify}", func(w *Work) bool { return w.Verify != "" }, refusedCell("gpuard watches processes of its own machine", "where gpuard is installed on the nodes or in the image, make it part of the command: -- {gpuard run} {verify} -- ./program").forAllTargets()},
	}
}

func waitingRows() []row {
	return []row{
		{"Spec.Waiting.No", "{no-wait}", func(w *Work) bool { return w.Spec.Waiting.No }, inPods(
			refusedCell("sbatch queues what cannot start now", "leave it out; sbatch --test-only says when it could start"), refusedCell("a pod waits until a node has room", "leave it out"), exactCell("Docker never waits"))},
		{"Spec.Waiting.Limit", "{wait}", func(w *Work) bool { return w.Spec.Waiting.Limit > 0 }, inPods(
			refusedCell("Slurm has no limit for waiting alone", "leave the time out; sbatch --deadline has one for waiting and running together"), refusedCell("a pod waits as long as it takes", "leave the time out"), refusedCell("Docker never waits", "leave it out"))},
		{"Spec.Waiting.Fallback", "{fallback}", func(w *Work) bool {
			// Which is what engines do.
			return len(w.Spec.Waiting.Fallback) > 0 && w.Spec.Waiting.Fallback[0] != "wait"
		}, refusedCell("the engine does not try something else in place of waiting", "leave it out, and hand it in again in the other form").forAllTargets()},
	}
}

func batchRows() []row {
	return []row{
		{"ID", "its ID", func(w *Work) bool { return w.ID != "" }, inPods(exactCell("--comment"), exactCell("end of the name"), exactCell("end of the project's name"))},
		{"Note", "{note}", func(w *Work) bool { return w.Note != "" }, inPods(exactCell("a remark"), exactCell("annotation gpuard/note"), exactCell("label gpuard.note"))},
		{"Held", "{hold}", func(w *Work) bool { return w.Held }, inPods(
			exactCell("--hold"), exactCell("suspend").withException("with {queue}", ignoreSite(func(w *Work) bool { return w.Queue != "" }), refusedCell("Kueue itself decides when a job of its queues is no longer suspended", "leave one of them out")),
			refusedCell("Docker starts what it is given", "leave it out, and start it later"))},
		{"After", "{after}", func(w *Work) bool { return len(w.After) > 0 }, inPods(
			exactCell("--dependency, and --kill-on-invalid-dep").withException("not a number of a job of Slurm", ignoreSite(hasOddAfter), refusedCell("Slurm calls jobs by number", "write the number that sbatch printed, such as {after=1234}")),
			refusedCell("a Job does not wait for another one", "hand it in when that one has ended: kubectl wait --for=condition=complete job/NAME"),
			refusedCell("Docker does not wait for a job of another project", "start it when that one has ended"))},
		{"Array.Tasks", "{array}", func(w *Work) bool { return len(w.Array.Tasks) > 0 }, inPods(
			exactCell("--array; GPUARD_ARRAY_TASK is SLURM_ARRAY_TASK_ID"),
			exactCell("completions of an indexed Job; GPUARD_ARRAY_TASK is the index").withException("numbers that do not begin at 0, or have gaps", ignoreSite(func(w *Work) bool { return !countsFromZero(w.Array.Tasks) }), refusedCell("an indexed Job counts from 0, without gaps", "write {array=0-N}, and count in the command")),
			refusedCell("Docker Compose has no arrays", "write a sweep: {gpuard sweep}"))},
		{"Array.Most", "{array} …%N", func(w *Work) bool { return w.Array.Most > 0 }, inPods(exactCell("--array=…%N"), exactCell("parallelism"), refusedCell("Docker Compose has no arrays", "write a sweep: {gpuard sweep}"))},
		{"Care.Notify", "{notify}", func(w *Work) bool { return w.Care.Notify != "" }, inPods(
			refusedCell("Slurm sends mail and nothing else", "leave it out, or add it: sbatch --mail-type=END --mail-user=YOU"), refusedCell("Kubernetes tells nobody", "leave it out; kubectl wait returns at the end"), refusedCell("Docker tells nobody", "leave it out; docker compose wait returns at the end"))},
		{"Namespace", "{namespace}", func(w *Work) bool { return w.Namespace != "" }, inPods(
			refusedCell("Slurm has no namespaces", "leave it out"), exactCell("metadata.namespace").withException("not a name of one", ignoreSite(func(w *Work) bool { return !isDNSLabel(w.Namespace) }), refusedCell("that is no name of a namespace", "write lower case letters, digits and -")), refusedCell("Docker has no namespaces", "leave it out"))},
		{"Queue", "{queue}", func(w *Work) bool { return w.Queue != "" }, inPods(
			exactCell("--partition").withException("characters that a directive cannot hold", ignoreSite(func(w *Work) bool { return directiveWord(w.Queue) != w.Queue }), refusedCell("that is no name of a partition", "sinfo lists them")),
			exactCell("label kueue.x-k8s.io/queue-name").withException("not a name of one", ignoreSite(func(w *Work) bool { return !isDNSLabel(w.Queue) }), refusedCell("that is no name of a queue", "kubectl get localqueues lists them")), refusedCell("Docker has no queues", "leave it out"))},
		{"Directives", "lines with #SBATCH", func(w *Work) bool { return len(w.Directives) > 0 }, inPods(
			exactCell("as they are").
				withException("not options of sbatch with a value in words that need no quotes", ignoreSite(hasOddDirective), refusedCell("a directive cannot hold it", "write options of sbatch such as --account=physics")).
				withException("an option that gpuard writes itself, such as --constraint for {mem}, --partition for {queue} or --output for {log}", repeatsDirective, approximateCell("without those that gpuard writes itself: --constraint for {mem}, --partition for {queue}, --output for {log}")),
			refusedCell("only Slurm reads them", "leave them out"), refusedCell("only Slurm reads them", "leave them out"))},
	}
}

func serviceRows() []row {
	alone := refusedCell("one service is written at a time, and nothing starts another one before it", "leave it out, and start that one first").forAllTargets()
	return []row{
		{"Service.Each", "each", func(w *Work) bool { return w.Service.Each }, refusedCell("it means the GPUs of this machine", "write gpus: N, or an array: {gpuard export} … {array=0-7}").forAllTargets()},
		{"Service.Replicas", "replicas", func(w *Work) bool { return w.Service.Replicas > 1 }, refusedCell("each instance has a command of its own", "write one service for each, or an array: {gpuard export} … {array=0-7}").forAllTargets()},
		{"Service.DependsOn", "depends_on", func(w *Work) bool { return len(w.Service.DependsOn) > 0 }, alone},
		{"Service.EnvFiles", "env_file", func(w *Work) bool { return len(w.Service.EnvFiles) > 0 }, approximateCell("the values that its files have now are in the text, for everybody who may read it").forAllTargets()},
		{"Service.Ready", "ready", func(w *Work) bool { return w.Service.Ready }, approximateCell("not checked: no service here waits for it").forAllTargets()},
		{"Service.Healthy", "healthy", func(w *Work) bool { return w.Service.Healthy }, refusedCell("the engine would not check it in the way of the file", "leave it out, and add the engine's own check").forAllTargets()},
	}
}
