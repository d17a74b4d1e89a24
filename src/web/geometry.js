// Which elements of a tensor a picture has, and its proportions. Pure functions.

const SIDE = 512; // elements of an axis that are shown by default
const LINE = 256; // elements in a row of a tensor with one axis
const LONGEST = 32; // times its other side, so that a row of many elements can be seen and pointed at

// Whether the last axis may be colours.
export const coloured = (shape) => shape.length >= 3 && [3, 4].includes(shape[shape.length - 1]);

// Every n-th element of the last two axes (in a colour picture: of the two before), and the first of all other axes.
export function suggest(shape, dtype) {
  if (shape.length === 0) return '';
  if (shape.length === 1) return `0:${Math.min(shape[0], SIDE * SIDE)}`;
  const picture = coloured(shape) && dtype === 'uint8' ? 3 : 2;
  return shape.map((n, axis) => {
    if (axis < shape.length - picture) return '0';
    if (picture === 3 && axis === shape.length - 1) return ':';
    return n <= SIDE ? ':' : `::${Math.ceil(n / SIDE)}`;
  }).join(',');
}

// [rows, columns, depth] of a picture of these elements.
export function layout(shape, mode) {
  const n = shape.reduce((a, b) => a * b, 1);
  if (mode === 'rgb' && coloured(shape)) {
    const [columns, depth] = shape.slice(-2);
    return [n / (columns * depth), columns, depth];
  }
  if (shape.length >= 2) return [n / shape[shape.length - 1], shape[shape.length - 1], 1];
  const columns = Math.min(n, LINE);
  return [Math.ceil(n / columns), columns, 1];
}

// The step of each axis that a slice of a tensor with `rank` axes keeps. An index drops its axis; axes that are not
// named are whole.
export function steps(slice, rank) {
  const parts = slice.split(',').map((part) => part.trim()).filter(Boolean);
  const dots = parts.indexOf('...');
  const missing = Array(Math.max(0, rank - parts.length + (dots >= 0 ? 1 : 0))).fill(':');
  if (dots >= 0) parts.splice(dots, 1, ...missing);
  else parts.push(...missing);
  return parts.filter((part) => part.includes(':')).map((part) => Number(part.split(':')[2]) || 1);
}

// {ratio, stretched}: width by height of the part of the tensor that the picture shows. Elements that a step leaves out
// count, so that the axes keep their proportions whatever their steps.
export function proportion(shape, slice, rank, mode) {
  const [rows, columns, depth] = layout(shape, mode);
  const own = shape.length >= 2 ? steps(slice, rank).slice(0, depth > 1 ? -1 : undefined).slice(-2) : [1, 1];
  const [down = 1, across = 1] = own;
  const ratio = (columns * across) / (rows * down);
  const shown = Math.min(LONGEST, Math.max(1 / LONGEST, ratio));
  return {ratio: shown, stretched: shown !== ratio};
}
