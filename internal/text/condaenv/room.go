package condaenv

import (
	"errors"
	"strings"

	"gpuard/internal/text/yamltree"
)

// Room is where a variable can be added to an environment file.
type Room struct {
	// Number of the line before which it goes, 0 for the end of the file.
	Line   int
	Indent string // of its line
	// There is no map of variables yet.
	Alone bool
}

// FindRoom finds room for a variable of this name. The error says in a few words why there is none.
func FindRoom(src []byte, name string) (Room, error) {
	docs, err := yamltree.Parse(src)
	if err != nil {
		return Room{}, err
	}
	if len(docs) != 1 || docs[0] == nil || docs[0].Kind != yamltree.Map || docs[0].Flow || len(docs[0].Pairs) == 0 {
		return Room{}, errors.New("it is not one map of name, dependencies and so on")
	}
	if docs[0].Pairs[0].Key.At.Column != 1 {
		return Room{}, errors.New("its keys do not begin in the first column")
	}

	for line := range strings.Lines(string(src)) {
		if strings.TrimSpace(line) == "..." {
			return Room{}, errors.New("it has a line that ends the document")
		}
	}

	var at *yamltree.Pair

	for i, p := range docs[0].Pairs {
		if p.Key.Text == "variables" {
			at = &docs[0].Pairs[i]
		}
	}

	if at == nil {
		return Room{Alone: true, Indent: "  "}, nil
	}

	room := Room{Line: at.Key.At.Line + 1, Indent: "  "}
	switch v := at.Value; {
	case v == nil || v.Kind == yamltree.Scalar && v.Null && v.Raw == "":
	case v.Kind != yamltree.Map || v.Flow || len(v.Pairs) == 0 || v.Pairs[0].Key.At.Line == at.Key.At.Line:
		return Room{}, errors.New("its variables are not written one a line")
	case v.Find(name) != nil:
		return Room{}, errors.New("it has " + name + " already")
	default:
		room.Indent = strings.Repeat(" ", v.Pairs[0].Key.At.Column-1)
	}

	return room, nil
}
