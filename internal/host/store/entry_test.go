package store

import "testing"

func TestEntryName(t *testing.T) {
	for name, want := range map[string]bool{
		"k3f9-0123abcd": true, "abcdefgh-many": true, "k3f9-0123abcd+89abcdef": true,
		"": false, "k3f9": false, "k3f9-": false, "3kf9-0123abcd": false, "K3f9-0123abcd": false, "kf9-0123abcd": false,
		"abcdefghi-many": false, "k3f9-0123abc": false, "k3f9-0123abcg": false, "k3f9-0123abcd+": false,
		"k3f9-0123ABCD": false, "k3f9-many+0123abcd": false, ".new-k3f9": false, "k3f9-0123abcd\n": false,
	} {
		if isEntryName(name) != want {
			t.Errorf("entryName(%q) is %v", name, !want)
		}
	}
}
