// Decodes the bytes of a tensor to numbers. Pure functions.

// A float of eight bits with the given bits of exponent and mantissa. The formats differ in the meaning of the largest
// codes.
function small(code, {exponent, mantissa, bias, kind}) {
  const sign = code & 0x80 ? -1 : 1;
  const e = (code >> mantissa) & ((1 << exponent) - 1);
  const m = code & ((1 << mantissa) - 1);
  const top = (1 << exponent) - 1;
  if (kind === 'fnuz' && code === 0x80) return NaN;
  if (kind === 'fn' && e === top && m === (1 << mantissa) - 1) return NaN;
  if (kind === 'ieee' && e === top) return m ? NaN : sign * Infinity;
  return sign * (e === 0 ? m * 2 ** (1 - bias - mantissa) : (1 + m / (1 << mantissa)) * 2 ** (e - bias));
}

function table(form) {
  return Float64Array.from({length: 256}, (_, code) => small(code, form));
}

const SMALL = {
  float8_e4m3fn: table({exponent: 4, mantissa: 3, bias: 7, kind: 'fn'}),
  float8_e5m2: table({exponent: 5, mantissa: 2, bias: 15, kind: 'ieee'}),
  float8_e4m3fnuz: table({exponent: 4, mantissa: 3, bias: 8, kind: 'fnuz'}),
  float8_e5m2fnuz: table({exponent: 5, mantissa: 2, bias: 16, kind: 'fnuz'}),
  float8_e8m0fnu: Float64Array.from({length: 256}, (_, code) => (code === 255 ? NaN : 2 ** (code - 127))),
  float8_e3m4: table({exponent: 3, mantissa: 4, bias: 3, kind: 'ieee'}),
  float8_e4m3: table({exponent: 4, mantissa: 3, bias: 7, kind: 'ieee'}),
  float8_e4m3b11fnuz: table({exponent: 4, mantissa: 3, bias: 11, kind: 'fnuz'}),
};

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const e = (bits >> 10) & 31;
  const m = bits & 1023;
  if (e === 31) return m ? NaN : sign * Infinity;
  return sign * (e === 0 ? m * 2 ** -24 : (1 + m / 1024) * 2 ** (e - 15));
}

const magnitude = (get, width) => (view, at) => Math.hypot(view[get](at, true), view[get](at + width, true));

// dtype: [bytes of an element, function that reads one]
const TYPES = {
  bool: [1, (v, at) => (v.getUint8(at) ? 1 : 0)],
  uint8: [1, (v, at) => v.getUint8(at)],
  uint16: [2, (v, at) => v.getUint16(at, true)],
  uint32: [4, (v, at) => v.getUint32(at, true)],
  uint64: [8, (v, at) => Number(v.getBigUint64(at, true))],
  int8: [1, (v, at) => v.getInt8(at)],
  int16: [2, (v, at) => v.getInt16(at, true)],
  int32: [4, (v, at) => v.getInt32(at, true)],
  int64: [8, (v, at) => Number(v.getBigInt64(at, true))],
  float16: [2, (v, at) => half(v.getUint16(at, true))],
  float32: [4, (v, at) => v.getFloat32(at, true)],
  float64: [8, (v, at) => v.getFloat64(at, true)],
  complex64: [8, magnitude('getFloat32', 4)],
  complex128: [16, magnitude('getFloat64', 8)],
};

const shifted = new DataView(new ArrayBuffer(4));
TYPES.bfloat16 = [2, (v, at) => {
  shifted.setUint32(0, v.getUint16(at, true) * 65536);
  return shifted.getFloat32(0);
}];
for (const [name, values] of Object.entries(SMALL)) TYPES[name] = [1, (v, at) => values[v.getUint8(at)]];

export function width(dtype) {
  return TYPES[dtype]?.[0] ?? 0;
}

// Complex numbers give their magnitudes; integers beyond 2^53 the nearest number.
export function decode(dtype, buffer) {
  const [size, read] = TYPES[dtype];
  const view = new DataView(buffer);
  const n = Math.floor(buffer.byteLength / size);
  const values = new Float64Array(n);
  for (let i = 0; i < n; i++) values[i] = read(view, i * size);
  return values;
}

// Statistics of the finite numbers, with the count of the others.
export function summary(values) {
  let min = Infinity;
  let max = -Infinity;
  let sum = 0;
  let nans = 0;
  let infinities = 0;
  for (const x of values) {
    if (Number.isNaN(x)) nans++;
    else if (!Number.isFinite(x)) infinities++;
    else {
      if (x < min) min = x;
      if (x > max) max = x;
      sum += x;
    }
  }
  const finite = values.length - nans - infinities;
  return {
    count: values.length,
    finite,
    nans,
    infinities,
    min: finite ? min : NaN,
    max: finite ? max : NaN,
    mean: finite ? sum / finite : NaN
  };
}

// [{from, to, count}]: equal steps from min to max; the last includes max. A few whole numbers get one bin each.
export function histogram(values, {min, max, finite}, wanted) {
  if (!finite) return [];
  let bins = wanted;
  let step = (max - min) / bins;
  let from = min;
  const whole = max - min < wanted && values.every((x) => !Number.isFinite(x) || Number.isInteger(x));
  if (whole || step === 0) {
    bins = Math.floor(max - min) + 1;
    step = 1;
    from = min - (whole ? 0 : 0.5);
  }
  const counts = new Array(bins).fill(0);
  for (const x of values) {
    if (Number.isFinite(x)) counts[Math.min(bins - 1, Math.floor((x - from) / step))]++;
  }
  return counts.map((count, i) => ({from: from + i * step, to: from + (i + 1) * step, count, whole}));
}
