package handoff

import (
	"strconv"
	"strings"

	"gpuard/internal/core/job"
	"gpuard/internal/core/prose"
)

// composeFile is the work as a project of Docker Compose with one service. In its values $$ is one $
// (docs.docker.com/reference/compose-file/interpolation).
func composeFile(w *Work) string {
	words := prose.Texts(startCommand(w), escapeDollars)

	env := object{}
	for _, v := range jobVariables(w) {
		env = append(env, field{v.Name, escapeDollars(v.Value)})
	}

	s := object{{"image", escapeDollars(w.Image)}, {"entrypoint", words}, {"command", []string{}}}.
		withField(w.Folder != "", "working_dir", escapeDollars(w.Folder)).
		withField(true, "environment", env).
		withField(true, "restart", composeRestart(w)).
		withField(w.Care.Stop != "", "stop_signal", w.Care.Stop).
		withField(w.Spec.Grace > 0, "stop_grace_period", w.Spec.Grace.String()).
		withField(sharesMemory(w), "shm_size", "8gb").
		withField(len(composeLabels(w)) > 0, "labels", composeLabels(w))

	if !w.Spec.CPU {
		devices := object{{"driver", "nvidia"}}.
			withField(len(w.Spec.Devices) > 0, "device_ids", w.Spec.Devices).
			withField(len(w.Spec.Devices) == 0, "count", w.Spec.GPUs).
			withField(true, "capabilities", []string{"gpu"})
		s = append(s, field{"deploy", object{{"resources", object{{"reservations", object{{"devices", []object{devices}}}}}}}})
	}

	return object{{"name", objectName(w)}, {"services", object{{hostLabel(jobName(w)), s}}}}.yamlDocument()
}

func composeRestart(w *Work) string {
	limit := ""
	switch {
	case w.Care.Restart == job.Always:
		return "always"
	case w.Care.Restart == job.OnFailure && w.Care.Limit > 0:
		limit = ":" + strconv.Itoa(w.Care.Limit)
	case w.Care.Restart == job.OnFailure:
	case w.Care.Retries > 0:
		limit = ":" + strconv.Itoa(w.Care.Retries)
	default:
		return "no"
	}
	return "on-failure" + limit
}

func composeLabels(w *Work) object {
	mark := func(text string) string { return escapeDollars(strings.ToValidUTF8(text, "?")) }
	return object{}.
		withField(w.Spec.Name != "" && hasOddName(w), "gpuard.name", mark(w.Spec.Name)).
		withField(w.Note != "", "gpuard.note", mark(w.Note)).
		withField(w.Spec.Time > 0, "gpuard.expect", w.Spec.Time.String())
}

func escapeDollars(text string) string { return strings.ReplaceAll(text, "$", "$$") }
