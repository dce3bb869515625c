package lint

import "slices"

// valueRules are about what is written into variables, in every format.
func valueRules() []Rule {
	return slices.Concat(maskRules(), nameRules(), jaxRules(), otherValueRules())
}
