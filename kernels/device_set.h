// Several devices as the one that an engine has: each page lies in parts, one per device, and every
// copy of a page is made in parts, each by the streams of the device whose it is.
//
// compute() is home's: whoever divides a model orders the others by it (model/divided_pass.h).
// copy_in() and copy_out() are all devices' together: what a copy reads or writes of a page's parts
// goes through the streams of their devices, all else through home's. Recorded on any of the three,
// an event is done when each device has got there: so behind it nothing of what was enqueued before
// runs anywhere, also where a device has ended that others wait for.
//
// The set has failed when one of its devices has. A fresh one may take that one's place: to who
// holds the set it is the same device, which works again. A set of one device is that one, with a
// place for the next.
#pragma once

#include <memory>
#include <vector>

#include "kernels/device.h"

namespace spillway::kernels {

struct PagePart {  // of a page, in bytes
  size_t offset = 0;
  size_t bytes = 0;
};

class DeviceSet : public Device {
 public:
  // Pages lie behind each other from `base` on: `parts` (device) of each of them, ascending, cover
  // it. Copies of them go in parts from now on until the memory is freed. Memory that allocate()
  // did not give is left as it is.
  virtual void part_pages(const std::byte* base, size_t page_bytes,
                          std::vector<PagePart> parts) = 0;

  // There is no devices[index] until replace(): the set is not used but for failure(), which says
  // so, as allocate_host() does; both may be asked on one thread while another takes out and
  // replaces. REQUIRES: no operation of that device runs or waits, and the set's events are gone.
  virtual void take_out(uint32_t index) = 0;
  virtual void replace(uint32_t index, Device& device) = 0;  // `device` outlives the set
  virtual bool has_ended(uint32_t index) const = 0;          // or is taken out
};

// `devices` outlive the set, or are replaced; memory, gates and compute() are those of
// devices[home].
std::unique_ptr<DeviceSet> make_device_set(std::vector<Device*> devices, uint32_t home);

}  // namespace spillway::kernels
