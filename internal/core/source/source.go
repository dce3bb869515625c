// Package source has the types for a value in a text and its position. It must not depend on any format.
package source

// Place is a position in a text. Lines and columns count from 1, columns in bytes; the end is after the last byte. Cell
// is the number of a notebook's cell, from 1, and the lines count within it; 0 outside notebooks. A column of 0 is
// unknown, and the value cannot be replaced.
type Place struct {
	Cell               int
	Line, Column       int
	EndLine, EndColumn int
}

// Value is a value in a file. Known is false when it is computed: then Text is the source.
type Value struct {
	// The value, without the quotes of the format.
	Text  string
	Known bool
	// Including its quotes.
	At Place
	// The text as written, with quotes, or the name of a constant. Only a literal may be replaced.
	Raw string
	// The one environment variable that a computed value is made of ("LOCAL_RANK"); "" when none is known.
	From string
}
