package prose

// OrElse is a value that may be absent, or what stands for it then.
func OrElse[T any](v *T, none T) T {
	if v == nil {
		return none
	}
	return *v
}

// ValueOr is what is made of a value that may be absent, or what stands for that then.
func ValueOr[T, R any](v *T, none R, of func(T) R) R {
	if v == nil {
		return none
	}
	return of(*v)
}
