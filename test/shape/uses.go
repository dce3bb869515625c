package main

import (
	"go/ast"
	"go/types"
	"slices"
)

// countFileUses says which file uses how many different definitions of which other file: uses[from][to]. Definitions are what
// the package declares at its top, with fields and methods.
func (p *pkg) countFileUses() [][]int {
	n := make([][]int, len(p.files))
	for i := range n {
		n[i] = make([]int, len(p.files))
	}
	for i, f := range p.files {
		seen := map[types.Object]bool{}
		ast.Inspect(f, func(node ast.Node) bool {
			id, ok := node.(*ast.Ident)
			if !ok {
				return true
			}
			o := originOf(p.info.Uses[id])
			if o == nil || o.Pkg() != p.types || seen[o] || !isPackageWide(o) {
				return true
			}
			seen[o] = true
			if to := p.fileOf(o.Pos()); to >= 0 && to != i {
				n[i][to]++
			}
			return true
		})
	}
	return n
}

// originOf is the declared one of a method or field of a generic type.
func originOf(o types.Object) types.Object {
	switch o := o.(type) {
	case *types.Func:
		return o.Origin()
	case *types.Var:
		return o.Origin()
	}
	return o
}

// isPackageWide reports whether an object can be used from another file.
func isPackageWide(o types.Object) bool {
	if v, ok := o.(*types.Var); ok && v.IsField() {
		return true
	}
	if f, ok := o.(*types.Func); ok && f.Signature().Recv() != nil {
		return true
	}
	return o.Parent() == o.Pkg().Scope()
}

// capAtOne is the same graph with at most one use from one file to another.
func capAtOne(uses [][]int) [][]int {
	out := make([][]int, len(uses))
	for i, row := range uses {
		out[i] = make([]int, len(row))
		for j, n := range row {
			out[i][j] = min(n, 1)
		}
	}
	return out
}

func sumUses(uses [][]int) (n int) {
	for _, row := range uses {
		for _, u := range row {
			n += u
		}
	}
	return n
}

// orderFiles puts the files into an order in which few uses run backwards: from a file to one further up. It moves one file
// at a time to its best place until no move helps, from several starts, and so finds a good order and not always the
// best.
func orderFiles(uses [][]int) (best []int, backwards int) {
	n := len(uses)
	sum := func(i int) (out int) {
		for j := range n {
			out += uses[i][j] - uses[j][i]
		}
		return out
	}
	for start := range min(2*n, 40) {
		at := make([]int, n)
		for i := range at {
			at[i] = (i + start/2*7) % n
		}
		if start%2 == 0 {
			slices.SortStableFunc(at, func(a, b int) int { return sum(b) - sum(a) })
		}
		for improveOrder(uses, at) {
			continue
		}
		back := 0
		for i, from := range at {
			for _, to := range at[:i] {
				back += uses[from][to]
			}
		}
		if best == nil || back < backwards {
			best, backwards = at, back
		}
	}
	return best, backwards
}

// improveOrder moves each file to its best place, and reports whether that helped.
func improveOrder(uses [][]int, at []int) (helped bool) {
	for file := range at {
		i := slices.Index(at, file)
		gain, most, to := 0, 0, i
		for j := i - 1; j >= 0; j-- { // up: what ran back to the file at j runs forward
			gain += uses[file][at[j]] - uses[at[j]][file]
			if gain > most {
				most, to = gain, j
			}
		}
		gain = 0
		for j := i + 1; j < len(at); j++ {
			gain += uses[at[j]][file] - uses[file][at[j]]
			if gain > most {
				most, to = gain, j
			}
		}
		if to != i {
			moved := slices.Insert(slices.Delete(slices.Clone(at), i, i+1), to, file)
			copy(at, moved)
			helped = true
		}
	}
	return helped
}
