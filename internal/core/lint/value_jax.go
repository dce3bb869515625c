package lint

import (
	"slices"
	"strconv"
	"strings"

	"gpuard/internal/core/check"
)

const (
	jaxFraction    = "XLA_CLIENT_MEM_FRACTION"
	jaxOldFraction = "XLA_PYTHON_CLIENT_MEM_FRACTION"
	jaxMemory      = "https://docs.jax.dev/en/latest/gpu_memory_allocation.html"
	jaxSource      = "jax-ml/jax: jaxlib/xla_client.py"
)

// jaxRules are about the variables by which JAX and XLA take GPU memory.
func jaxRules() []Rule {
	return []Rule{bothFractionsRule(), fractionRule(), preallocateRule(), allocatorRule()}
}

func bothFractionsRule() Rule {
	r := Rule{
		Page: check.Page{
			Code: "jax-both-fractions", Title: "Both names of JAX's memory fraction",
			Text: "`XLA_CLIENT_MEM_FRACTION` is the new name of `XLA_PYTHON_CLIENT_MEM_FRACTION`. Where both are set JAX ends with a ValueError as soon as it starts the GPU. Keep one: the new name, or the old one for old versions of jaxlib.",
			From: []string{jaxSource},
		},
		Severity: check.Error,
		Bad:      []Example{{"train.sh", "export XLA_CLIENT_MEM_FRACTION=.5\nexport XLA_PYTHON_CLIENT_MEM_FRACTION=.5\npython train.py\n"}},
		Good:     []Example{{"train.sh", "export XLA_CLIENT_MEM_FRACTION=.5\npython train.py\n"}, {"train.sh", "if old_jax; then export XLA_PYTHON_CLIENT_MEM_FRACTION=.5; else export XLA_CLIENT_MEM_FRACTION=.5; fi\npython train.py\n"}},
	}
	r.Look = func(file File) (all []Finding) {
		for _, group := range together(file) {
			_, newer := group[jaxFraction]
			old, both := group[jaxOldFraction]
			if newer && both {
				f := valued(r, r.Severity, old, jaxFraction+" and "+jaxOldFraction+" are both set", "JAX refuses to start with both names of the same setting", "keep "+jaxFraction+" alone", "")
				f.At = old.At
				all = append(all, f)
			}
		}
		return all
	}
	return r
}

func fractionRule() Rule {
	r := Rule{
		Page: check.Page{
			Code: "jax-fraction", Title: "A memory fraction that is no fraction",
			Text: "JAX's memory fraction is a part of the GPU's memory, above 0 and at most 1: half of it is `.5`, not `50` and not `50%`. More than 1 asks for more memory than the GPU has, and makes sense only together with unified memory (`TF_FORCE_UNIFIED_MEMORY=1`).",
			From: []string{jaxMemory, "google-deepmind/alphafold3: docs/performance.md"},
		},
		Severity: check.Error,
		Bad:      []Example{{"train.sh", "export XLA_CLIENT_MEM_FRACTION=50\npython train.py\n"}, {"train.sh", "export XLA_CLIENT_MEM_FRACTION=50%\npython train.py\n"}},
		Good:     []Example{{"train.sh", "export XLA_CLIENT_MEM_FRACTION=.50\npython train.py\n"}, {"fold.sh", "export TF_FORCE_UNIFIED_MEMORY=1\nexport XLA_CLIENT_MEM_FRACTION=3.2\npython run_alphafold.py\n"}},
	}
	r.Look = func(file File) (all []Finding) {
		unified := false
		eachNamed(file, func(s Step) { unified = unified || strings.HasSuffix(s.Name, "FORCE_UNIFIED_MEMORY") })
		eachSet(file, func(s Step) {
			if s.Name != jaxFraction && s.Name != jaxOldFraction {
				return
			}
			n, err := strconv.ParseFloat(strings.TrimSpace(s.Value.Text), 64)
			if s.Value.Text == "" || err == nil && n > 0 && (n <= 1 || unified) {
				return
			}
			better := percent(s.Value.Text)
			do := "write a number above 0 and at most 1"
			if better != "" {
				do = "write " + s.Name + "=" + better
			}
			all = append(all, valued(r, r.Severity, s, assigned(s)+" is no fraction of a GPU's memory", "it is taken as a part of the whole, so 1 is all of it", do, better))
		})
		return all
	}
	return r
}

// percent turns 50 and 50% into .50; "" for anything else.
func percent(value string) string {
	digits := strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "%"))
	n, err := strconv.Atoi(digits)
	if err != nil || n < 10 || n > 99 {
		return ""
	}
	return "." + strconv.Itoa(n)
}

func preallocateRule() Rule {
	const name = "XLA_PYTHON_CLIENT_PREALLOCATE"
	r := Rule{
		Page: check.Page{
			Code: "jax-preallocate", Title: "A no that JAX takes for a yes",
			Text: "Only `false`, `False` and `0` keep JAX from taking three quarters of the GPU's memory at its start. Any other value, `no` and `off` and `FALSE` among them, is taken for yes.",
			From: []string{jaxSource},
		},
		Severity: check.Error,
		Bad:      []Example{{"train.sh", "export XLA_PYTHON_CLIENT_PREALLOCATE=off\npython train.py\n"}},
		Good:     []Example{{"train.sh", "export XLA_PYTHON_CLIENT_PREALLOCATE=false\npython train.py\n"}, {"train.sh", "export XLA_PYTHON_CLIENT_PREALLOCATE=true\npython train.py\n"}},
	}
	r.Look = func(file File) (all []Finding) {
		eachSet(file, func(s Step) {
			says := strings.ToLower(strings.Trim(s.Value.Text, ` "'`))
			no := slices.Contains([]string{"false", "0", "no", "n", "off", "f", "none", "never", "disable", "disabled"}, says)
			if s.Name != name || !no || slices.Contains([]string{"false", "False", "0"}, s.Value.Text) {
				return
			}
			all = append(all, valued(r, r.Severity, s, assigned(s)+" does not keep JAX from taking the memory at its start", "only false, False and 0 do that; every other value means yes", "write "+name+"=false", "false"))
		})
		return all
	}
	return r
}

func allocatorRule() Rule {
	const name = "XLA_PYTHON_CLIENT_ALLOCATOR"
	known := []string{"default", "platform", "bfc", "cuda_async", "vmm", "address"}
	r := Rule{
		Page: check.Page{
			Code: "jax-allocator", Title: "A memory allocator that JAX does not know",
			Text: "JAX ends with an error at its start unless `XLA_PYTHON_CLIENT_ALLOCATOR` is one of " + strings.Join(known, ", ") + ".",
			From: []string{jaxSource},
		},
		Severity: check.Error,
		Bad:      []Example{{"train.sh", "export XLA_PYTHON_CLIENT_ALLOCATOR=cudaMallocAsync\npython train.py\n"}},
		Good:     []Example{{"train.sh", "export XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async\npython train.py\n"}},
	}
	r.Look = func(file File) (all []Finding) {
		eachSet(file, func(s Step) {
			says := strings.ToLower(s.Value.Text)
			if s.Name != name || says == "" || slices.Contains(known, says) {
				return
			}
			better := ""
			if bare := strings.NewReplacer("malloc", "", "_", "", "-", "").Replace(says); bare == "cudaasync" || bare == "async" {
				better = "cuda_async"
			}
			do := "write one of " + strings.Join(known, ", ")
			if better != "" {
				do = "write " + name + "=" + better
			}
			all = append(all, valued(r, r.Severity, s, assigned(s)+" names no allocator of JAX", "JAX ends with an error when it starts the GPU", do, better))
		})
		return all
	}
	return r
}
