// Converts numbers to pixels. Pure functions.

const VIRIDIS = [
  [68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99],
  [170, 220, 50], [253, 231, 37]
];
const NOT_A_NUMBER = [255, 0, 160];

function viridis(t) {
  const at = t * (VIRIDIS.length - 1);
  const i = Math.min(VIRIDIS.length - 2, Math.floor(at));
  return VIRIDIS[i].map((a, c) => Math.round(a + (VIRIDIS[i + 1][c] - a) * (at - i)));
}

function grey(t) {
  const v = Math.round(255 * t);
  return [v, v, v];
}

// The position of x between min and max, 0 to 1; infinities are at the ends.
function place(x, min, max) {
  if (x === Infinity) return 1;
  if (x === -Infinity) return 0;
  return max > min ? Math.min(1, Math.max(0, (x - min) / (max - min))) : 0.5;
}

function fill(pixels, at, colour) {
  pixels[at] = colour[0];
  pixels[at + 1] = colour[1];
  pixels[at + 2] = colour[2];
  pixels[at + 3] = 255;
}

// RGBA of rows × columns, from numbers in C order. rgb: each pixel has `depth` numbers, of which the first three are
// its colours: bytes unchanged, other types scaled from min to max.
export function paint(values, {rows, columns, depth = 1, mode, min, max, bytes}) {
  const pixels = new Uint8ClampedArray(4 * rows * columns);
  const map = mode === 'viridis' ? viridis : grey;
  for (let i = 0; i < rows * columns && i * depth < values.length; i++) {
    if (mode === 'rgb') {
      const rgb = [0, 1, 2].map((c) => (bytes ? values[i * depth + c] : 255 * place(values[i * depth + c], min, max)));
      fill(pixels, 4 * i, rgb);
    } else {
      const x = values[i];
      fill(pixels, 4 * i, Number.isNaN(x) ? NOT_A_NUMBER : map(place(x, min, max)));
    }
  }
  return pixels;
}
