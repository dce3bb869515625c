package experiment

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Ratio is one quantity in two arms: of the geometric means, with a 95 % confidence interval.
type Ratio struct {
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// minRatio is the smallest ratio that counts as a difference: four decimal places do not show a smaller one.
const minRatio = 1.0001

// ShowsDifference reports whether the interval excludes that there is no difference.
func (r Ratio) ShowsDifference() bool { return r.isMore() || r.isLess() }

func (r Ratio) isMore() bool { return r.Low >= minRatio }

func (r Ratio) isLess() bool { return r.High <= 1/minRatio }

// inverse is the ratio the other way round.
func (r Ratio) inverse() Ratio { return Ratio{1 / r.Ratio, 1 / r.High, 1 / r.Low} }

// ratioOf compares the values of an arm with those of another. It is nil where there are fewer than two of either, or
// where one is not above zero, or they vary so much that the interval is no number.
//
// The interval is Student's for two samples of unequal variance (Welch 1947), on logarithms, with the degrees of
// freedom of the smaller sample: the number that is safe whatever the variances are. A bootstrap of percentiles of five
// runs covers 88 % instead of 95 %, and one that is studentized widens without bound when one of the five is an outlier
// (decision 0037).
//
// Runs that print the same rounded number have no spread that is seen. It is taken to be at least that of the rounding.
func ratioOf(values, base []float64) *Ratio {
	if len(values) < 2 || len(base) < 2 || slices.Min(values) <= 0 || slices.Min(base) <= 0 {
		return nil
	}

	places := max(maxDecimalPlaces(values), maxDecimalPlaces(base))
	mean, variance := logMeanVariance(values, places)
	mean0, variance0 := logMeanVariance(base, places)
	middle := mean - mean0
	half := student95(min(len(values), len(base))-1) * math.Sqrt(variance/float64(len(values))+variance0/float64(len(base)))
	r := &Ratio{math.Exp(middle), math.Exp(middle - half), math.Exp(middle + half)}
	if r.Low == 0 || math.IsInf(r.High, 0) {
		return nil
	}

	return r
}

// logMeanVariance are the mean of the logarithms of numbers with so many decimal places, and their variance.
func logMeanVariance(values []float64, places int) (mean, variance float64) {
	n := float64(len(values))
	for _, v := range values {
		mean += math.Log(v) / n
	}

	for _, v := range values {
		d := math.Log(v) - mean
		variance += d * d / (n - 1)
	}

	step := math.Pow10(-places) / math.Exp(mean)

	// What is rounded lies anywhere within a step.
	return mean, max(variance, step*step/12)
}

// maxDecimalPlaces is how many decimal places the number with the most of them has.
func maxDecimalPlaces(values []float64) (most int) {
	for _, v := range values {
		_, after, _ := strings.Cut(strconv.FormatFloat(v, 'f', -1, 64), ".")
		most = max(most, len(after))
	}
	return most
}

// student95 is the 97.5 % quantile of Student's distribution: from a table up to 10 degrees of freedom, then by the
// expansion of Abramowitz and Stegun 26.7.5, whose error is below 0.0001 there.
func student95(freedom int) float64 {
	table := []float64{12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281}
	if freedom <= len(table) {
		return table[freedom-1]
	}

	const z = 1.959964
	n := float64(freedom)

	return z + (z*z*z+z)/(4*n) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*n*n) + (3*math.Pow(z, 7)+19*math.Pow(z, 5)+17*z*z*z-15*z)/(384*n*n*n)
}

// median is the middle of the values, of which there is at least one.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
