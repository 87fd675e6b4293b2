// Several devices as the one that an engine has: each page lies in parts, one per device, and every
// copy of a page is made in parts, each by the streams of the device whose it is.
//
// compute() is home's: whoever divides a model orders the others by it (model/divided_pass.h).
// copy_in() and copy_out() are all devices' together: what a copy reads or writes of a page's parts
// goes through the streams of their devices, all else through home's. Recorded there, an event is
// done when each device has got there. It has failed when one of them has.
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
};

// `devices` outlive the set; memory, gates and compute() are those of devices[home].
std::unique_ptr<DeviceSet> make_device_set(std::vector<Device*> devices, uint32_t home);

}  // namespace spillway::kernels
