// Whole files, read into memory that each thread uses again.
//
//     const Bytes bytes = read_file(paths, file);
//
// No bytes: the file is missing, unreadable, empty, not a regular file (a pipe or a device is never read), larger than
// `most`, or its name is no name. The bytes are valid until the thread's next call. Nothing is mapped: a file that is
// cut off meanwhile would be a SIGBUS.

#pragma once

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

namespace strobe {

using Bytes = std::span<const uint8_t>;  // a file or a part of it

// Paths, or whole files, in one buffer: `ends[i]` is where path i ends in `text`. `holds` must be true of i before it is asked for.
struct Paths {
  std::span<const uint8_t> text;
  std::span<const int64_t> ends;

  bool holds(int64_t file) const {
    if (file < 0 || static_cast<uint64_t>(file) >= ends.size()) return false;
    const int64_t start = begin(file), end = ends[file];
    return 0 <= start && start <= end && static_cast<uint64_t>(end) <= text.size();
  }

  // What lies at that place, where these are no paths but contents of files.
  Bytes part(int64_t file) const {
    return text.subspan(static_cast<size_t>(begin(file)), static_cast<size_t>(ends[file] - begin(file)));
  }

  // The path, ended by a zero; false when it is too long or has a zero inside.
  bool copy(int64_t file, char (&path)[PATH_MAX]) const {
    const size_t length = ends[file] - begin(file);
    if (length >= PATH_MAX) return false;
    std::memcpy(path, text.data() + begin(file), length);
    path[length] = '\0';
    return std::memchr(path, '\0', length) == nullptr;
  }

 private:
  int64_t begin(int64_t file) const { return file > 0 ? ends[file - 1] : 0; }
};

// A file that is open for reading, or not.
class File {
 public:
  File(const Paths& paths, int64_t file) {
    char path[PATH_MAX];
    if (!paths.copy(file, path)) return;
    do {  // O_NONBLOCK: to open a pipe must not wait for its writer
      descriptor_ = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    } while (descriptor_ < 0 && errno == EINTR);
  }
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  explicit operator bool() const { return descriptor_ >= 0; }

  // Size in bytes of a regular file, else -1.
  int64_t size() const {
    struct stat found;
    return fstat(descriptor_, &found) == 0 && S_ISREG(found.st_mode) ? static_cast<int64_t>(found.st_size) : -1;
  }

  // One read: bytes, 0 at the file's end, or -1.
  int64_t read_once(std::span<uint8_t> into) const {
    ssize_t count;
    do {
      count = ::read(descriptor_, into.data(), into.size());
    } while (count < 0 && errno == EINTR);
    return count;
  }

  // Fills `into` as far as the file goes; the number of bytes, or -1.
  int64_t read(std::span<uint8_t> into) const {
    size_t filled = 0;
    while (filled < into.size()) {
      const int64_t count = read_once(into.subspan(filled));
      if (count < 0) return -1;
      if (count == 0) break;
      filled += static_cast<size_t>(count);
    }
    return static_cast<int64_t>(filled);
  }

 private:
  int descriptor_ = -1;
};

// The calling thread's memory, of at least `size` bytes; empty when there is none. Page-aligned: the kernel copies
// fastest so. What was in it is lost when it grows.
inline std::span<uint8_t> scratch(size_t size) {
  constexpr size_t kPage = 4096;
  struct Free {
    void operator()(uint8_t* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<uint8_t, Free> memory;
  thread_local size_t capacity = 0;
  if (capacity < size) {
    const size_t rounded = (size + kPage - 1) / kPage * kPage;
    memory.reset(static_cast<uint8_t*>(std::aligned_alloc(kPage, rounded)));
    capacity = memory ? rounded : 0;
    if (!memory) return {};
  }
  return {memory.get(), capacity};
}

inline Bytes read_file(const Paths& paths, int64_t number, int64_t most = int64_t{1} << 30) {
  const File file(paths, number);
  if (!file) return {};
  const int64_t size = file.size();
  if (size <= 0 || size > most) return {};
  const std::span<uint8_t> memory = scratch(static_cast<size_t>(size));
  if (memory.empty()) return {};
  const int64_t count = file.read(memory.first(static_cast<size_t>(size)));
  return count > 0 ? Bytes(memory.data(), static_cast<size_t>(count)) : Bytes();
}

}  // namespace strobe
