package isolation

// ReadMounts and Within are what the tests look at.
func ReadMounts(text string) (all [][3]string) {
	for _, m := range readMounts(text) {
		all = append(all, [3]string{m.device, m.root, m.point})
	}
	return all
}

func Within(path, folder string) (rest string, below bool) { return pathBelow(path, folder) }
