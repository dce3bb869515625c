package lint

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

func lookTensorFlowLate(f File) (all []Finding) {
	// By function.
	started := map[string]Step{}
	for _, s := range f.Steps {
		if s.Do != Call || s.Shell != 0 || rootModule(s.Name) != "tensorflow" {
			continue
		}
		name := strings.ReplaceAll(strings.TrimPrefix(s.Name, "tensorflow."), "experimental.", "")
		switch {
		case hasWord("config.list_logical_devices constant Variable zeros ones range convert_to_tensor random.uniform random.normal matmul distribute.MirroredStrategy", name):
			if _, known := started[s.In]; !known && !s.Maybe {
				started[s.In] = s
			}
		case hasWord("config.set_memory_growth config.set_visible_devices config.set_logical_device_configuration config.set_virtual_device_configuration", name):
			if first, is := started[s.In]; is {
				all = append(all, Finding{Finding: check.Finding{
					Seen: fmt.Sprintf("%s() comes after %s() in line %d, which started the GPUs", s.Name, first.Name, first.At.Line),
					Why:  "TensorFlow ends with a RuntimeError: it must be set before GPUs have been initialized", Do: "move it directly below the import of tensorflow"}, At: s.At})
			}
		}
	}

	return all
}

func lookTensorFlowOld(f File) []Finding {
	i := slices.IndexFunc(f.Steps, func(s Step) bool {
		return s.Do == Call && s.Shell == 0 && hasWord("tensorflow.Session tensorflow.ConfigProto tensorflow.GPUOptions tensorflow.InteractiveSession", s.Name)
	})

	whole := slices.ContainsFunc(f.Steps, func(s Step) bool {
		// A program for TensorFlow 1, or for both.
		return s.Do == Version && rootModule(s.Name) == "tensorflow" || strings.HasPrefix(s.Name, "tensorflow.compat.") || hasWord("tensorflow.placeholder tensorflow.global_variables_initializer tensorflow.get_variable tensorflow.app.run keras.backend.set_session tensorflow.keras.backend.set_session", s.Name)
	})

	newer := slices.ContainsFunc(f.Steps, func(s Step) bool {
		// Names that TensorFlow 1 does not have.
		return hasWord("tensorflow.function tensorflow.config.list_physical_devices tensorflow.config.set_visible_devices tensorflow.config.get_visible_devices tensorflow.random.set_seed tensorflow.keras.utils.set_random_seed tensorflow.config.run_functions_eagerly", s.Name)
	})

	if i < 0 || whole || !newer || strings.Contains(f.Steps[i].Branch, "t") {
		return nil
	}

	name := strings.TrimPrefix(f.Steps[i].Name, "tensorflow.")

	return []Finding{{Finding: check.Finding{Seen: "tf." + name + " is of TensorFlow 1",
		Why: "TensorFlow 2, of which this file uses other names, ends with an AttributeError there", Do: "write tf.compat.v1." + name + ", or tf.config.set_logical_device_configuration of TensorFlow 2"}, At: f.Steps[i].At}}
}
