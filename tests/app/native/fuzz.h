// What the programs share that damage files at random and read them. They are meant to be built with sanitizers, which
// end them at the first access that is not allowed: each input lies in memory of exactly its size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <span>
#include <vector>

namespace fuzz {

using Content = std::vector<uint8_t>;

inline std::mt19937_64 generator;

inline size_t below(size_t bound) { return bound == 0 ? 0 : generator() % bound; }

inline Content load(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  return Content(std::istreambuf_iterator<char>(stream), {});
}

// Changes a file that is not empty as any file may be damaged: most often at its head, or by a piece.
inline void damage(Content& file, const Content& other) {
  const size_t size = file.size(), at = below(size), length = below(std::min<size_t>(size - at, 300));
  const size_t head = std::min<size_t>(size, 700);
  const Content piece(file.begin() + at, file.begin() + at + length);
  switch (below(8)) {
    case 0: return file.resize(below(size + 1));
    case 1: return file.resize(size - std::min(size, below(8)));
    case 2:
      for (size_t bits = below(16) + 1; bits > 0; bits--)
        file[below(below(2) ? size : head)] ^= uint8_t(1u << below(8));
      return;
    case 3:
      for (size_t bytes = below(6) + 1; bytes > 0; bytes--) file[below(head)] = uint8_t(generator());
      return;
    case 4: file.insert(file.end(), below(64), 0xff); return;
    case 5: file.erase(file.begin() + at, file.begin() + at + length); return;
    case 6: file.insert(file.begin() + below(size), piece.begin(), piece.end()); return;
    default:
      const size_t from = below(other.size()), count = std::min(below(other.size() - from), size - at);
      std::copy_n(other.begin() + from, count, file.begin() + at);
  }
}

// Reads `inputs` files, each one of the seeds, damaged up to three times: by `own` kinds of damage as often as by
// general ones. Prints how many `read` accepted.
template <class Own, class Read>
int run(const char* inputs, const char* seed, std::span<char*> paths, Own&& own, Read&& read) {
  generator.seed(std::strtoull(seed, nullptr, 10));
  std::vector<Content> seeds;
  for (const char* path : paths) seeds.push_back(load(path));
  const long count = std::atol(inputs);
  long accepted = 0;
  for (long input = 0; input < count; input++) {
    Content file = seeds[below(seeds.size())];
    for (size_t times = below(4); times > 0 && !file.empty(); times--)
      below(2) ? own(file) : damage(file, seeds[below(seeds.size())]);
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[file.size()]);
    std::copy(file.begin(), file.end(), exact.get());
    accepted += read(std::span<const uint8_t>(exact.get(), file.size()));
  }
  std::printf("%ld of %ld read\n", accepted, count);
  return 0;
}

}  // namespace fuzz
