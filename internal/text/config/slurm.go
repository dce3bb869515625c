package config

import (
	"regexp"
	"strconv"

	"gpuard/internal/core/gpu"
	"gpuard/internal/text/yamltree"
)

// readSlurm reads what the names of a cluster mean. They become parts of options of sbatch, so they are plain words.
func (r *reader) readSlurm(n *yamltree.Node) {
	const of = " of slurm"
	plain := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)
	r.file.Slurm.Types, r.file.Slurm.Features = map[string]string{}, map[string]gpu.Bytes{}

	for _, e := range r.knownEntries(n, r.keys.Slurm, "slurm", of) {
		if e.Value.Kind != yamltree.Map {
			r.Wrong(e.Value.At, "%s%s is not a map; write for instance %[1]s: %[3]s", e.Key.Name, of, e.Key.Sample)
			continue
		}
		for _, p := range r.UniqueEntries(e.Value, e.Key.Name+of) {
			of := " in " + e.Key.Name + of
			mib, err := strconv.ParseUint(p.Value.Text, 10, 32)
			switch {
			case p.Value.Kind != yamltree.Scalar || p.Value.Null:
				r.Wrong(p.Key.At, "%s%s has no value; write for instance %s: %s", p.Key.Text, of, e.Key.Name, e.Key.Sample)
			case e.Key.Name == "types" && !plain.MatchString(p.Value.Text):
				r.Wrong(p.Value.At, "the type of %s%s is %q; write letters, digits and _ . -", p.Key.Text, of, p.Value.Text)
			case e.Key.Name == "types":
				r.file.Slurm.Types[p.Key.Text] = p.Value.Text
			case !plain.MatchString(p.Key.Text):
				r.Wrong(p.Key.At, "%q%s is no feature; write letters, digits and _ . -", p.Key.Text, of)
			case err != nil || mib == 0:
				r.Wrong(p.Value.At, "%s%s is %q; write MiB as a whole number, such as 81559", p.Key.Text, of, p.Value.Text)
			default:
				r.file.Slurm.Features[p.Key.Text] = gpu.Bytes(mib) * gpu.MiB
			}
		}
	}
}
