// Package source says where something is written in a text, and how. It knows no format.
package source

// Place is where something stands. Lines and columns count from 1, columns in bytes; the end is behind the last byte.
// Cell is the number of a notebook's cell, from 1, and the lines count within it; 0 outside notebooks. Columns of 0 are not
// known, and nothing can be mended there.
type Place struct {
	Cell               int
	Line, Column       int
	EndLine, EndColumn int
}

// Value is something that is written in the file. Known is false when it is computed: then Text is the source.
type Value struct {
	Text  string // the value, unquoted as the format has it
	Known bool
	At    Place  // with its quotes
	Raw   string // as written, with quotes; the name where a constant's name is written. Only a literal may be replaced
	From  string // the one environment variable that a computed value is made of ("LOCAL_RANK"); "" when none is known
}
