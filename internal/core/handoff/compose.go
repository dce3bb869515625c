package handoff

import (
	"strconv"
	"strings"

	"gpuard/internal/core/job"
)

// composeFile is the work as a project of Docker Compose with one service. In its values $$ is one $
// (docs.docker.com/reference/compose-file/interpolation).
func composeFile(w *Work) string {
	var words []string
	for _, word := range command(w) {
		words = append(words, doubled(word))
	}
	env := object{}
	for _, v := range variables(w) {
		env = append(env, field{v.Name, doubled(v.Value)})
	}
	s := object{{"image", doubled(w.Image)}, {"entrypoint", words}, {"command", []string{}}}.
		with(w.Folder != "", "working_dir", doubled(w.Folder)).
		with(true, "environment", env).
		with(true, "restart", restart(w)).
		with(w.Care.Stop != "", "stop_signal", w.Care.Stop).
		with(w.Spec.Grace > 0, "stop_grace_period", w.Spec.Grace.String()).
		with(sharesMemory(w), "shm_size", "8gb").
		with(len(marks(w)) > 0, "labels", marks(w))
	if !w.Spec.CPU {
		devices := object{{"driver", "nvidia"}}.
			with(len(w.Spec.Devices) > 0, "device_ids", w.Spec.Devices).
			with(len(w.Spec.Devices) == 0, "count", w.Spec.GPUs).
			with(true, "capabilities", []string{"gpu"})
		s = append(s, field{"deploy", object{{"resources", object{{"reservations", object{{"devices", []object{devices}}}}}}}})
	}
	return object{{"name", objectName(w)}, {"services", object{{dns(name(w)), s}}}}.document()
}

func restart(w *Work) string {
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

func marks(w *Work) object {
	mark := func(text string) string { return doubled(strings.ToValidUTF8(text, "?")) }
	return object{}.
		with(w.Spec.Name != "" && oddName(w), "gpuard.name", mark(w.Spec.Name)).
		with(w.Note != "", "gpuard.note", mark(w.Note)).
		with(w.Spec.Time > 0, "gpuard.expect", w.Spec.Time.String())
}

func doubled(text string) string { return strings.ReplaceAll(text, "$", "$$") }
