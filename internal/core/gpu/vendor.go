package gpu

import "slices"

// Vendor is the maker of a device.
type Vendor string

// The vendors whose visibility rules differ.
const (
	NVIDIA Vendor = "nvidia"
	AMD    Vendor = "amd"
	Intel  Vendor = "intel"
	Ascend Vendor = "ascend"
)

// Vendors are all of them, in the order in which devices are listed.
func Vendors() []Vendor { return []Vendor{NVIDIA, AMD, Intel, Ascend} }

// vendorFacts are the names by which vendors differ.
type vendorFacts struct {
	vendor                                    Vendor
	name, runtime, tinygrad, node, sharedNode string
}

func (v Vendor) facts() vendorFacts {
	table := []vendorFacts{
		{NVIDIA, "NVIDIA", "cuda", "NV", "nvidia", "nvidia-uvm"},
		{AMD, "AMD", "hip", "AMD", "dri/renderD", "kfd"},
		{Intel, "Intel", "level-zero", "", "dri/renderD", ""},
		{Ascend, "Ascend", "npu", "", "", ""},
	}
	i := slices.IndexFunc(table, func(f vendorFacts) bool { return f.vendor == v })
	if i < 0 {
		return vendorFacts{name: string(v), runtime: "cuda"}
	}
	return table[i]
}

// Name is the vendor's name for people.
func (v Vendor) Name() string { return v.facts().name }

// RuntimeName is the name under which programs number the vendor's devices: "cuda" in cuda:0.
func (v Vendor) RuntimeName() string { return v.facts().runtime }

// TinygradName is the name of tinygrad's own driver for the vendor's devices; "" where it has none.
func (v Vendor) TinygradName() string { return v.facts().tinygrad }

// NodePrefix is the name of a device file below /dev without its number, which is Device.Minor; "" where it is not known.
func (v Vendor) NodePrefix() string { return v.facts().node }

// SharedNode is the file below /dev that programs open for computing, whatever the device; "" where it is not known.
func (v Vendor) SharedNode() string { return v.facts().sharedNode }
