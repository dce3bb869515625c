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

// VendorFacts are the names by which vendors differ.
type VendorFacts struct {
	vendor Vendor
	// The name for people.
	Name string
	// The word under which programs number its devices: "cuda" in cuda:0.
	Runtime string
	// The name of tinygrad's own driver for them; "" where it has none.
	Tinygrad string
	// The name of a device file below /dev, without its number, which is Device.Minor; "" where it is not known.
	Node string
	// The name of the file below /dev that programs open for computing, whatever the device; "" where it is not known.
	SharedNode string
}

// Facts are those of the vendor. One that is not in the table has its own word for a name.
func (v Vendor) Facts() VendorFacts {
	table := []VendorFacts{
		{NVIDIA, "NVIDIA", "cuda", "NV", "nvidia", "nvidia-uvm"},
		{AMD, "AMD", "hip", "AMD", "dri/renderD", "kfd"},
		{Intel, "Intel", "level-zero", "", "dri/renderD", ""},
		{Ascend, "Ascend", "npu", "", "", ""},
	}
	i := slices.IndexFunc(table, func(f VendorFacts) bool { return f.vendor == v })
	if i < 0 {
		return VendorFacts{Name: string(v), Runtime: "cuda"}
	}
	return table[i]
}
