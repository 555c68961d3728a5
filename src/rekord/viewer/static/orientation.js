// @ts-check
// EXIF orientation: browsers show an image upright; boxes and masks count the pixels as they are stored.

// Of the orientations 1 to 8: are the axes swapped, and is then x or y of the upright image mirrored?
const TURNS = [
	[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 0, 1],
];

const turn = (orientation) => TURNS[orientation] ?? TURNS[1];

/** @type {uprightSize} */
export const uprightSize = (orientation, width, height) => turn(orientation)[0] ? [height, width] : [width, height];

/** The stored pixel that is shown at an upright one. @type {storedPixel} */
export function storedPixel(orientation, width, height, x, y) {
	const [isSwapped, mirrorX, mirrorY] = turn(orientation);
	const [w, h] = uprightSize(orientation, width, height);
	const [a, b] = [mirrorX ? w - 1 - x : x, mirrorY ? h - 1 - y : y];
	return isSwapped ? [b, a] : [a, b];
}

/** A box in fractions of the stored image [ymin, xmin, ymax, xmax], as left, top, width and height of the upright one. @type {uprightBox} */
export function uprightBox(orientation, [ymin, xmin, ymax, xmax]) {
	const [a, b] = [uprightPoint(orientation, xmin, ymin), uprightPoint(orientation, xmax, ymax)];
	const [left, top] = [Math.min(a[0], b[0]), Math.min(a[1], b[1])];
	return { left, top, width: Math.abs(a[0] - b[0]), height: Math.abs(a[1] - b[1]) };
}

function uprightPoint(orientation, x, y) {
	const [isSwapped, mirrorX, mirrorY] = turn(orientation);
	const [a, b] = isSwapped ? [y, x] : [x, y];
	return [mirrorX ? 1 - a : a, mirrorY ? 1 - b : b];
}

/** A mask turned upright. @type {uprightMask} */
export function uprightMask(mask, orientation) {
	if (orientation <= 1 || orientation > 8) return mask;
	const [width, height] = uprightSize(orientation, mask.width, mask.height);
	const ids = mask.ids.slice();
	for (let y = 0, i = 0; y < height; y += 1) {
		for (let x = 0; x < width; x += 1, i += 1) {
			const [sx, sy] = storedPixel(orientation, mask.width, mask.height, x, y);
			ids[i] = mask.ids[sy * mask.width + sx];
		}
	}
	return { ids, width, height };
}
