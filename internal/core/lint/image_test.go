package lint

import (
	"strings"
	"testing"
)

// TestFirstGPUsOfImage: a list of the first GPUs is said in a sentence.
func TestFirstGPUsOfImage(t *testing.T) {
	for list, want := range map[string]string{"0": "GPUs after the first one stay unused, ", "0,1": "GPUs after the first 2 stay unused, "} {
		found := lookFixedInImage(File{Steps: []Step{
			{Do: Setting, Name: "FROM", Value: Value{Text: "debian", Known: true}},
			{Do: Set, How: "ENV", Name: "CUDA_VISIBLE_DEVICES", Value: Value{Text: list, Known: true}},
		}})
		if len(found) != 1 || !strings.HasPrefix(found[0].Why, want) {
			t.Errorf("%s: %+v", list, found)
		}
	}
}
