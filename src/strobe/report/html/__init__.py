"""What the convolution study still draws its pages with."""
