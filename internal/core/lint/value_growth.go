package lint

import (
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

const tensorflowGrowth = "TF_FORCE_GPU_ALLOW_GROWTH"

func lookGrowth(s Step) []Finding {
	if s.Name != tensorflowGrowth || isOneOf(s.Value.Text, "true", "false", "") || placeholder().MatchString(s.Value.Text) {
		return nil
	}

	better, severity := "true", check.Severity("")
	if slices.Contains([]string{"0", "false", "no", "off"}, strings.ToLower(s.Value.Text)) {
		// What was meant is mostly what happens without the variable.
		better, severity = "false", check.Info
	}

	f := valueFinding(s, assignmentText(s)+" is ignored", "TensorFlow knows true and false, in small letters; any other value leaves the setting as it was",
		"write "+tensorflowGrowth+"="+better, better)

	f.Severity = severity

	return []Finding{f}
}
