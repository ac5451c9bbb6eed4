// Writes the JPEGs that Pillow cannot write: encode_jpeg WIDTH HEIGHT COMPONENTS SAMPLING OPTIONS < pixels > photo
// SAMPLING: two digits for each component, as 22 11 11 for 4:2:0. OPTIONS: any of the letters
// p progressive, a arithmetic coding, s a scan for each component, r restart markers, o optimised tables.

#include <cstdio>
#include <cstring>
#include <iterator>
#include <vector>

#include <jpeglib.h>

int main(int, char** arguments) {
  int width = 0, height = 0, components = 0;
  std::sscanf(arguments[1], "%d", &width);
  std::sscanf(arguments[2], "%d", &height);
  std::sscanf(arguments[3], "%d", &components);
  const char *sampling = arguments[4], *options = arguments[5];
  const auto wants = [&](char letter) { return std::strchr(options, letter) != nullptr; };
  std::vector<unsigned char> row(width * components);
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  jpeg_stdio_dest(&jpeg, stdout);
  jpeg.image_width = width;
  jpeg.image_height = height;
  jpeg.input_components = components;
  jpeg.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 90, TRUE);
  for (int component = 0; component < components; component++) {
    jpeg.comp_info[component].h_samp_factor = sampling[2 * component] - '0';
    jpeg.comp_info[component].v_samp_factor = sampling[2 * component + 1] - '0';
  }
  jpeg_scan_info scans[4] = {};
  if (wants('s')) {
    for (int component = 0; component < components; component++)
      scans[component] = {1, {component, 0, 0, 0}, 0, DCTSIZE2 - 1, 0, 0};
    jpeg.scan_info = scans;
    jpeg.num_scans = components;
  }
  if (wants('p')) jpeg_simple_progression(&jpeg);
  jpeg.arith_code = wants('a');
  jpeg.optimize_coding = wants('o');
  jpeg.restart_interval = wants('r') ? 3 : 0;
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    if (std::fread(row.data(), 1, row.size(), stdin) != row.size()) return 1;
    unsigned char* line = row.data();
    jpeg_write_scanlines(&jpeg, &line, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  return 0;
}
