package lint

import (
	"fmt"
	"slices"
	"strings"

	"gpuard/internal/core/check"
)

func tensorflowRules() []Rule { return []Rule{tensorflowLate(), tensorflowOld()} }

const tensorflowGuide = "https://www.tensorflow.org/guide/gpu"

func tensorflowLate() Rule {
	return Rule{
		Page: check.Page{
			Code:  "tensorflow-started",
			Title: "TensorFlow's GPUs are configured after it has started them",
			Text: "`set_visible_devices`, `set_memory_growth` and logical devices must be set before TensorFlow starts its GPUs: the first tensor, or `list_logical_devices`, starts them. Later they end with `RuntimeError: ... must be set before GPUs have been initialized`.\n\n" +
				"Move the configuration directly below the import. `list_physical_devices` starts nothing.",
			From: []string{tensorflowGuide},
		},
		Severity: check.Error,
		Bad: []Example{
			{"logical.py", "import tensorflow as tf\nprint(tf.config.list_logical_devices('GPU'))\ngpus = tf.config.list_physical_devices('GPU')\ntf.config.experimental.set_memory_growth(gpus[0], True)\n"},
			{"tensor.py", "import tensorflow as tf\nx = tf.constant([1.0])\ntf.config.set_visible_devices(tf.config.list_physical_devices('GPU')[1], 'GPU')\n"},
		},
		Good: []Example{
			{"first.py", "import tensorflow as tf\ngpus = tf.config.list_physical_devices('GPU')\ntf.config.experimental.set_memory_growth(gpus[0], True)\nx = tf.constant([1.0])\nprint(tf.config.list_logical_devices('GPU'))\n"},
			{"function.py", "import tensorflow as tf\ndef make():\n    return tf.constant([1.0])\ngpus = tf.config.list_physical_devices('GPU')\ntf.config.set_visible_devices(gpus[1], 'GPU')\nmake()\n"},
		},
		Look: func(f File) []Finding {
			var all []Finding
			started := map[string]Step{} // by function
			for _, s := range f.Steps {
				if s.Do != Call || s.Shell != 0 || library(s.Name) != "tensorflow" {
					continue
				}
				name := strings.ReplaceAll(strings.TrimPrefix(s.Name, "tensorflow."), "experimental.", "")
				switch {
				case among("config.list_logical_devices constant Variable zeros ones range convert_to_tensor random.uniform random.normal matmul test.is_gpu_available test.gpu_device_name distribute.MirroredStrategy", name):
					if _, known := started[s.In]; !known && !s.Maybe {
						started[s.In] = s
					}
				case among("config.set_memory_growth config.set_visible_devices config.set_logical_device_configuration config.set_virtual_device_configuration", name):
					if first, is := started[s.In]; is {
						all = append(all, Finding{Finding: check.Finding{Code: "tensorflow-started", Severity: check.Error,
							Seen: fmt.Sprintf("%s() comes after %s() in line %d, which started the GPUs", s.Name, first.Name, first.At.Line),
							Why:  "TensorFlow ends with a RuntimeError: it must be set before GPUs have been initialized", Do: "move it directly below the import of tensorflow"}, At: s.At})
					}
				}
			}
			return all
		},
	}
}

func tensorflowOld() Rule {
	return Rule{
		Page: check.Page{
			Code:  "tensorflow-1-name",
			Title: "A name of TensorFlow 1 that TensorFlow 2 does not have",
			Text: "`tf.Session`, `tf.ConfigProto` and `tf.GPUOptions` are of TensorFlow 1. With TensorFlow 2 they end with an `AttributeError`, so a limit such as `per_process_gpu_memory_fraction` is never set.\n\n" +
				"In TensorFlow 2 write `tf.config.set_logical_device_configuration` with a `memory_limit`, or `tf.config.experimental.set_memory_growth`; old programs run with `tf.compat.v1`.",
			From: []string{"https://www.tensorflow.org/guide/migrate", tensorflowGuide},
		},
		Severity: check.Warning,
		Bad: []Example{
			{"session.py", "import tensorflow as tf\noptions = tf.GPUOptions(per_process_gpu_memory_fraction=0.4)\nsession = tf.Session(config=tf.ConfigProto(gpu_options=options))\n"},
		},
		Good: []Example{
			{"compat.py", "import tensorflow as tf\noptions = tf.compat.v1.GPUOptions(per_process_gpu_memory_fraction=0.4)\nsession = tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(gpu_options=options))\n"},
			{"whole.py", "import tensorflow as tf\nx = tf.placeholder(tf.float32)\nwith tf.Session(config=tf.ConfigProto()) as s:\n    s.run(tf.global_variables_initializer())\n"},
			{"v1.py", "import tensorflow.compat.v1 as tf\nsession = tf.Session()\n"},
		},
		Look: func(f File) []Finding {
			i := slices.IndexFunc(f.Steps, func(s Step) bool {
				return s.Do == Call && s.Shell == 0 && among("tensorflow.Session tensorflow.ConfigProto tensorflow.GPUOptions tensorflow.InteractiveSession", s.Name)
			})
			whole := slices.ContainsFunc(f.Steps, func(s Step) bool { // a program for TensorFlow 1
				return among("tensorflow.placeholder tensorflow.global_variables_initializer tensorflow.get_variable tensorflow.app.run", s.Name)
			})
			if i < 0 || whole {
				return nil
			}
			name := strings.TrimPrefix(f.Steps[i].Name, "tensorflow.")
			return []Finding{{Finding: check.Finding{Code: "tensorflow-1-name", Severity: check.Warning, Seen: "tf." + name + " is of TensorFlow 1",
				Why: "TensorFlow 2 ends with an AttributeError there, and what it should limit has no limit", Do: "write tf.compat.v1." + name + ", or tf.config.set_logical_device_configuration of TensorFlow 2"}, At: f.Steps[i].At}}
		},
	}
}
