package nvsmi

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// xmlDocument is the part of the XML that is used, as text. It has the elements of several driver generations; a
// document has those of one. Source of the names: outputs of drivers 340 to 590 in influxdata/telegraf
// plugins/inputs/nvidia_smi/testdata and netdata/netdata issues.
type xmlDocument struct {
	driver, cuda, attached string
	gpus                   []xmlGPU
	// Why the document ends before its end; "" where it does not.
	damage string
	// Text between the devices: complaints about devices that have no element.
	loose string
}

type xmlGPU struct {
	ID          string `xml:"id,attr"`
	Name        string `xml:"product_name"`
	UUID        string `xml:"uuid"`
	Minor       string `xml:"minor_number"`
	Bus         string `xml:"pci>pci_bus_id"`
	Persistence string `xml:"persistence_mode"`
	Display     string `xml:"display_active"`
	ComputeMode string `xml:"compute_mode"`

	MIGMode string   `xml:"mig_mode>current_mig"`
	MIG     []xmlMIG `xml:"mig_devices>mig_device"`

	Memory    xmlMemory `xml:"fb_memory_usage"`
	Util      string    `xml:"utilization>gpu_util"`
	MemUtil   string    `xml:"utilization>memory_util"`
	Temp      string    `xml:"temperature>gpu_temp"`
	TempSlow  string    `xml:"temperature>gpu_temp_slow_threshold"`
	TempLeft  string    `xml:"temperature>gpu_temp_tlimit"`
	Power     xmlPower  `xml:"gpu_power_readings"`
	PowerOld  xmlPower  `xml:"power_readings"` // before 535
	ClockSM   string    `xml:"clocks>sm_clock"`
	ClockMem  string    `xml:"clocks>mem_clock"`
	ClockMax  string    `xml:"max_clocks>sm_clock"`
	Events    xmlFlags  `xml:"clocks_event_reasons"`
	EventsOld xmlFlags  `xml:"clocks_throttle_reasons"` // before 535

	ECCMode  string     `xml:"ecc_mode>current_ecc"`
	ECC      xmlECC     `xml:"ecc_errors>volatile"`
	Remapped xmlRemap   `xml:"remapped_rows"`
	Retired  xmlRetired `xml:"retired_pages"`
	Recovery string     `xml:"gpu_recovery_action"`
	Fabric   xmlFabric  `xml:"fabric"`
	Reset    string     `xml:"gpu_reset_status>reset_required"` // 530 to 575
	Drain    string     `xml:"gpu_reset_status>drain_and_reset_recommended"`

	Processes    xmlProcesses `xml:"processes"`
	ProcessesOld xmlProcesses `xml:"compute_processes"` // before 340
}

// xmlFabric is the NVLink fabric, and what may be wrong with it.
type xmlFabric struct {
	State string `xml:"state"`
	// The status of the probe that made the state.
	Status    string `xml:"status"`
	Bandwidth string `xml:"health>bandwidth"` // "Full", "Degraded"
	Unhealthy string `xml:"health>route_unhealthy"`
	// "None", or what is wrong.
	Configuration string `xml:"health>incorrect_configuration"`
}

// xmlProcesses has a text, such as "N/A", where the driver does not list the processes.
type xmlProcesses struct {
	Text string       `xml:",chardata"`
	List []xmlProcess `xml:"process_info"`
}

type xmlMIG struct {
	Index string `xml:"index"`
	// No known driver writes it.
	UUID   string    `xml:"uuid"`
	GI     string    `xml:"gpu_instance_id"`
	CI     string    `xml:"compute_instance_id"`
	Memory xmlMemory `xml:"fb_memory_usage"`
}

type xmlMemory struct {
	Total string `xml:"total"`
	// The reserve since 510; before that it is part of used.
	Reserved string `xml:"reserved"`
	Used     string `xml:"used"`
}

type xmlPower struct {
	// The average of a second, which the library says where there is one.
	Average  string `xml:"average_power_draw"`
	Draw     string `xml:"power_draw"`
	Instant  string `xml:"instant_power_draw"`
	Current  string `xml:"current_power_limit"`
	Enforced string `xml:"enforced_power_limit"`
	Limit    string `xml:"power_limit"`
}

// xmlFlags is a group of elements with the text "Active" or "Not Active".
type xmlFlags struct {
	Flags []struct {
		XMLName xml.Name
		Text    string `xml:",chardata"`
	} `xml:",any"`
}

type xmlECC struct {
	Single          string `xml:"single_bit>total"` // before Ampere
	Double          string `xml:"double_bit>total"`
	SRAMCorrected   string `xml:"sram_correctable"`
	DRAMCorrected   string `xml:"dram_correctable"`
	SRAMUncorrected string `xml:"sram_uncorrectable"`
	// The parity errors since 535, in place of sram_uncorrectable.
	SRAMParity      string `xml:"sram_uncorrectable_parity"`
	SRAMSECDED      string `xml:"sram_uncorrectable_secded"`
	DRAMUncorrected string `xml:"dram_uncorrectable"`
}

type xmlRemap struct {
	Corrected   string `xml:"remapped_row_corr"`
	Uncorrected string `xml:"remapped_row_unc"`
	Pending     string `xml:"remapped_row_pending"`
	Failure     string `xml:"remapped_row_failure"`
}

type xmlRetired struct {
	Single     string `xml:"multiple_single_bit_retirement>retired_count"`
	Double     string `xml:"double_bit_retirement>retired_count"`
	Pending    string `xml:"pending_retirement"`
	PendingOld string `xml:"pending_blacklist"`
}

type xmlProcess struct {
	GI     string `xml:"gpu_instance_id"`
	CI     string `xml:"compute_instance_id"`
	PID    string `xml:"pid"`
	Type   string `xml:"type"`
	Name   string `xml:"process_name"`
	Memory string `xml:"used_memory"`
}

// decodeDocument walks through the children of the root and unmarshals one device at a time.
func decodeDocument(input []byte) (*xmlDocument, error) {
	d := xml.NewDecoder(bytes.NewReader(repairXML(input)))

	// Repair made it UTF-8.
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	doc := &xmlDocument{}
	var loose strings.Builder
	inside := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it is empty")
		}

		if err == nil {
			switch t := token.(type) {
			case xml.CharData:
				loose.Write(t)
			case xml.StartElement:
				if inside {
					err = doc.decodeChild(d, t)
				} else if inside = t.Name.Local == "nvidia_smi_log"; !inside {
					err = fmt.Errorf("it begins with <%s> in place of <nvidia_smi_log>", truncate(t.Name.Local, 40))
				}
			case xml.EndElement:
				// Of the root: children take their own.
				doc.loose = loose.String()
				return doc, nil
			}
		}

		if err != nil && len(doc.gpus) == 0 {
			return nil, err
		}

		if err != nil {
			// What was whole counts.
			doc.damage, doc.loose = err.Error(), loose.String()
			return doc, nil //nolint:nilerr // it is said beside them
		}
	}
}

func (doc *xmlDocument) decodeChild(d *xml.Decoder, start xml.StartElement) error {
	switch start.Name.Local {
	case "gpu":
		var g xmlGPU
		if err := d.DecodeElement(&g, &start); err != nil {
			return err
		}
		doc.gpus = append(doc.gpus, g)

		return nil
	case "driver_version":
		return d.DecodeElement(&doc.driver, &start)
	case "cuda_version":
		return d.DecodeElement(&doc.cuda, &start)
	case "attached_gpus":
		return d.DecodeElement(&doc.attached, &start)
	}
	return d.Skip()
}
