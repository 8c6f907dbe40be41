#include "mapped.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <mutex>

namespace fedincentive {
namespace {

constexpr size_t kHuge = size_t{2} << 20;  // where files lie in pages of this size, whole ones are mapped at once

size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

size_t round_down(size_t value, size_t to) { return value / to * to; }
size_t round_up(size_t value, size_t to) { return round_down(value + to - 1, to); }

bool reaches(const MappedFiles::Part& part) {
  struct stat found;
  return fstat(part.file, &found) == 0 && S_ISREG(found.st_mode) && found.st_size >= part.offset + part.size;
}

thread_local MappedFiles* watched = nullptr;

// The handler of SIGBUS is ours as long as files are mapped, and hands on what is not about them.
std::mutex mutex;
int users = 0;
struct sigaction before;

void on_bus_error(int number, siginfo_t* info, void* context) {
  const int error = errno;
  const bool ours = watched && watched->replace(info->si_addr);
  errno = error;
  if (ours) return;
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    signal(number, SIG_DFL);
    raise(number);  // taken when this returns
  }
}

void begin_use() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (users++ > 0) return;
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &before);
}

void end_use() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (--users > 0) return;
  struct sigaction now;
  if (sigaction(SIGBUS, nullptr, &now) == 0 && now.sa_sigaction == on_bus_error) sigaction(SIGBUS, &before, nullptr);
}

}  // namespace

MappedFiles::MappedFiles(const std::vector<Part>& parts) : parts_(parts), starts_(parts.size(), nullptr) {
  int64_t largest = 0;
  for (const Part& part : parts_)
    if (part.file >= 0) largest = std::max(largest, part.size);
  if (largest == 0) return;
  const size_t page = page_size(), unit = static_cast<size_t>(largest) >= 2 * kHuge ? kHuge : page;
  span_ = round_up(static_cast<size_t>(largest), kHuge) + 2 * kHuge;
  const size_t all = span_ * parts_.size() + kHuge;
  void* reserved = mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return;
  begin_ = static_cast<unsigned char*>(reserved);
  end_ = begin_ + all;
  first_ = begin_ + (kHuge - reinterpret_cast<uintptr_t>(begin_) % kHuge);
  begin_use();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.file < 0 || part.size == 0 || !reaches(part)) continue;
    const auto offset = static_cast<size_t>(part.offset), from = round_down(offset, unit);
    const size_t size = round_up(offset + static_cast<size_t>(part.size), unit) - from;
    unsigned char* to = first_ + i * span_ + from % kHuge;
    if (mmap(to, size, PROT_READ, MAP_SHARED | MAP_FIXED, part.file, static_cast<off_t>(from)) != MAP_FAILED)
      starts_[i] = to + (offset - from);
  }
}

MappedFiles::~MappedFiles() {
  if (!begin_) return;
  munmap(begin_, static_cast<size_t>(end_ - begin_));
  end_use();
}

bool MappedFiles::whole() const {
  if (lost_) return false;
  for (size_t i = 0; i < parts_.size(); ++i)
    if (starts_[i] && !reaches(parts_[i])) return false;  // the rest of the last page reads as zeros, too
  return true;
}

bool MappedFiles::replace(const void* address) noexcept {
  const auto place = reinterpret_cast<uintptr_t>(address), first = reinterpret_cast<uintptr_t>(first_);
  if (place < first || place >= reinterpret_cast<uintptr_t>(end_)) return false;
  lost_ = true;  // before any thread can see the zeros
  const size_t at = round_down(place - first, page_size()), next = round_down(at, span_) + span_;
  return mmap(first_ + at, next - at, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

MappedFiles::Watch::Watch(MappedFiles& files) { watched = &files; }
MappedFiles::Watch::~Watch() { watched = nullptr; }

}  // namespace fedincentive
