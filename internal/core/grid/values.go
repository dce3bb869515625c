package grid

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// A range is FIRST..LAST or FIRST..LAST:STEP, both ends included, up or down. Numbers are decimal and exact: 0..1:0.1
// has eleven values, and none of them is 0.30000000000000004. They have as many decimals as the longest of first and
// step, and leading zeros where an end has some: 01..10.

// looksLikeRange reports a text that can only be meant as a range; a path such as ../data is none.
func looksLikeRange(text string) bool {
	return regexp.MustCompile(`^[-+0-9.eE]*[0-9.]\.\.[-+0-9.]`).MatchString(text)
}

// parseAxis reads a list of values and ranges. It is one line of CSV, so a value with a comma needs double quotes.
func parseAxis(list string) (values []string, err error) {
	r := csv.NewReader(strings.NewReader(list))
	items, err := r.Read()
	switch _, more := r.Read(); {
	case err == nil && !errors.Is(more, io.EOF):
		return nil, errors.New("its values are on more than one line")
	case errors.Is(err, io.EOF):
		return nil, errors.New("it has no values")
	case err != nil:
		return nil, fmt.Errorf(`%w; put a value with a comma or a quote in double quotes, and write a quote in it twice`, plainCSV(err))
	}

	for _, item := range items {
		switch {
		case item == "":
			return nil, errors.New("a value is empty")
		case !looksLikeRange(item):
			values = append(values, item)
			continue
		}

		more, err := expandRange(item)
		if err != nil {
			return nil, err
		}

		values = append(values, more...)
		if len(values) > MaxRuns {
			return nil, fmt.Errorf("that is %d values, and a sweep has at most %d runs", len(values), MaxRuns)
		}
	}

	return values, nil
}

// plainCSV removes the position from a CSV error: the user has written no such line.
func plainCSV(err error) error {
	var at *csv.ParseError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// largerStep is the smallest power of ten with which a range that is way long has few enough values.
func largerStep(way *big.Rat) string {
	few := func(step *big.Rat) bool { return new(big.Rat).Quo(way, step).Cmp(big.NewRat(MaxRuns, 1)) < 0 }
	step, ten := big.NewRat(1, 1), big.NewRat(10, 1)
	for !few(step) {
		step.Mul(step, ten)
	}

	for smaller := new(big.Rat).Quo(step, ten); few(smaller); smaller.Quo(step, ten) {
		step.Set(smaller)
	}

	return strings.TrimSuffix(strings.TrimRight(step.FloatString(100), "0"), ".")
}

// expandRange are the values of a range.
func expandRange(text string) ([]string, error) {
	const number = `(-?\d{1,30}(?:\.\d{1,30})?)`
	parts := regexp.MustCompile(`^` + number + `\.\.` + number + `(?::` + number + `)?$`).FindStringSubmatch(text)
	if parts == nil {
		return nil, fmt.Errorf("%q is no range: write FIRST..LAST or FIRST..LAST:STEP in plain numbers, such as 1..10 or 0..1:0.25", text)
	}

	rat := func(s string) *big.Rat { r, _ := new(big.Rat).SetString(s); return r }
	first, last, step := rat(parts[1]), rat(parts[2]), big.NewRat(1, 1)
	if parts[3] != "" {
		step = rat(parts[3])
	}

	if step.Sign() <= 0 {
		return nil, fmt.Errorf("the range %q has the step %s: write one above 0; a range that goes down begins with its larger end, such as 10..1:3", text, parts[3])
	}

	way := new(big.Rat).Sub(last, first)
	down := way.Sign() < 0
	steps := new(big.Rat).Quo(way.Abs(way), step)
	count := new(big.Int).Quo(steps.Num(), steps.Denom())
	if count.Cmp(big.NewInt(MaxRuns)) >= 0 {
		return nil, fmt.Errorf("the range %q has %s values, and a sweep has at most %d runs; write a larger step (%s..%s:%s)",
			text, count.Add(count, big.NewInt(1)), MaxRuns, parts[1], parts[2], largerStep(way))
	}

	if down {
		step.Neg(step)
	}

	places, width := max(countDecimals(parts[1]), countDecimals(parts[3])), paddedWidth(parts[1], parts[2])
	out := make([]string, 0, count.Int64()+1)
	for at := first; int64(len(out)) <= count.Int64(); at = new(big.Rat).Add(at, step) {
		out = append(out, padNumber(at.FloatString(places), width))
	}

	return out, nil
}

func countDecimals(number string) int {
	_, decimals, _ := strings.Cut(number, ".")
	return len(decimals)
}

// paddedWidth is the width of the numbers if an end has leading zeros, otherwise 0.
func paddedWidth(ends ...string) (width int) {
	zero := false
	for _, end := range ends {
		width = max(width, len(end))
		digits := strings.TrimPrefix(end, "-")
		zero = zero || len(digits) > 1 && digits[0] == '0' && digits[1] != '.'
	}
	if !zero {
		return 0
	}

	return width
}

func padNumber(number string, width int) string {
	sign, digits := "", number
	if rest, negative := strings.CutPrefix(number, "-"); negative {
		sign, digits = "-", rest
	}
	return sign + strings.Repeat("0", max(0, width-len(sign)-len(digits))) + digits
}

// ReadTable reads the rows of a CSV file into one run each. Its first line names the parameters. A byte order mark,
// which spreadsheets write, is not part of the first name.
func ReadTable(data []byte) (Grid, error) {
	var g Grid
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))))

	// Counted here, for a plainer error.
	r.FieldsPerRecord = -1
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return g, errors.New("it is empty; its first line names the parameters, and each further line is a run")
	}
	if err != nil {
		return g, err
	}

	for _, name := range head {
		if err := checkName(strings.TrimSpace(name), g.Names); err != nil {
			return g, fmt.Errorf("line 1: %w", err)
		}
		g.Names = append(g.Names, strings.TrimSpace(name))
	}

	g.Rows = [][]string{}

	for {
		row, err := r.Read()
		switch {
		case errors.Is(err, io.EOF) && len(g.Rows) == 0:
			return g, errors.New("it has no line after the first, which names the parameters")
		case errors.Is(err, io.EOF):
			return g, nil
		case err != nil:
			return g, err
		case len(row) != len(head):
			at, _ := r.FieldPos(0)
			return g, fmt.Errorf("line %d: it has %d values, and line 1 names %d parameters", at, len(row), len(head))
		case len(g.Rows) == MaxRuns:
			return g, fmt.Errorf("it has more than %d lines, which is the most that a sweep runs", MaxRuns)
		}
		if i := slices.IndexFunc(row, func(value string) bool { return strings.Contains(value, "\x00") }); i >= 0 {
			line, column := r.FieldPos(i)
			return g, fmt.Errorf("line %d, column %d: it has a NUL character, which no argument can have", line, column)
		}
		g.Rows = append(g.Rows, row)
	}
}
