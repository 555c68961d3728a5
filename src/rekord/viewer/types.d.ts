// What the modules of the page share: JSON of the server, and what they hand to each other. For the type checker.

type ServerError = {error: string, code: string | null, what: string, location?: Record<string, any>, expected?: string, found?: string, likely?: string, do?: string};
type SplitFacts = {name: string, files: number, bytes: number};
type Status = {busy: boolean, sides: {schema_pending: boolean, splits: SplitStatus[]}[], check: {state: string, text: string, files: number, of: number, findings: number, errors: number, warnings: number}};
type Query = Record<string, string | number | boolean | null | undefined>;
type Column = {
  name: string;
  type: string;
  summary: string;
  view: "image"|"mask"|"boxes"|"class"|"number"|"text"|"tensor"|"bytes"|"audio"|"video"|"list";
  classes: string[] | null;
  colours: string[] | null;
  ignore: number | null;
  facet: boolean;
};
type Side = {
  index: number;
  name: string;
  path: string;
  error: ServerError | null;
  columns: Column[];
  steps: Column[];
  splits: SplitFacts[];
  overlays: {image: string, masks: string[], boxes: string[]}[];
  label: string | null;
};
type Session = {
  version: string;
  edit: boolean;
  sql: boolean;
  stamp?: string;
  schema_pending?: boolean;
  predictions: boolean;
  limits: {record_bytes: number, decoded_bytes: number, pixels: number, tiles: number, page: number, findings: number};
  sides: Side[];
};
type SplitStatus = {
  name: string;
  records: number;
  complete: boolean;
  state: string;
  read_bytes: number;
  bytes: number;
  damaged: number;
  note: string | null;
  error: ServerError | null;
};
type Child = Node | string | null | undefined | boolean | 0;  // what is not there is left out
type Props = Record<string, any>;
type Tag = keyof HTMLElementTagNameMap;
type AnEvent<A extends any[]> = {on: (listener: (...args: A) => void, until?: AbortSignal) => void, emit: (...args: A) => void};
// An HTML element: `h("p.soft", { title: "…" }, children)`. The name is a tag, with classes after dots. Beside
// attributes, `label` is the accessible name, `style` an object, and `onclick` a listener.
type MakeElement = {
  <T extends Tag>(name: T, first?: Props | Child | Child[], ...children: (Child | Child[])[]): HTMLElementTagNameMap[T];
  <T extends Tag>(name: `${T}.${string}`, first?: Props | Child | Child[], ...children: (Child | Child[])[]): HTMLElementTagNameMap[T];
};
type Facets = {complete: boolean, records: number, of: number | null, selected: number, sql: string | null, facets: Facet[], error: any};
type Cube = {active: string, bins: number, cubes: Record<string, {bins: number, cumulative: number[]}>, totals: number[]};
type Chart = {element: HTMLElement, draw: (selected: number[]) => void};
// `prepare` fetches the joint counts of a facet and all others, once, before the first move.
type Brush = {prepare: (column: string) => Promise<void>, move: (column: string, first: number, end: number) => void, commit: (column: string, range: [number, number] | null) => void};
type Facet = {
  column: string;
  type: string;
  names: string[];
  codes: (number | string)[];
  colours: string[] | null;
  edges: number[];
  lows: string[];  // an edge as the start of a range
  highs: string[];  // and as its end
  listed: {as: "same" | "unique", text: string} | null;  // how it is only named, because no filter on it is of use
  integer: boolean;
  counts: number[];
  selected: number[];
  missing: number;
  other: number;
};
type RecordKey = [string, number];
type View = {focus: () => void, current: () => {split: string, record: number} | null, jump: (index: number) => void, total: () => number | null, step?: (direction: 1 | -1) => void, toggle?: () => unknown};
/** Records that are equal, in one split or in two. */
type Mount = (host: HTMLElement, until: AbortSignal) => View | null;
type Ids = Uint8Array | Uint16Array | Int32Array;
type MaskData = {ids: Ids, width: number, height: number};
type Batch = {px: number, first: number, count: number, view: DataView, pixels: Uint8Array};
// A line of tiles; sorted by class, each class begins a line below its name.
type Line = {top: number, label: string | null, code: number | null, tiles: number[]};
type Preferences = {theme: "auto" | "light" | "dark", masks: boolean, boxes: boolean, opacity: number, patterns: boolean, keys: boolean, tile: number};
type Feature = Column & {stored: string | null, count: number, bytes: number, shape: number[] | null, dtype: string | null, value: any, error: ServerError | null};
type ImageFacts = {format: string, width: number, height: number, orientation: number, state: string};
type Cell = {text: string, image?: ImageFacts, code?: number, value?: number | string, count?: number, missing?: boolean, boxes?: number[][], labels?: number[], names?: string[]};
type Row = {record: number, split: string, file: string, file_record: number, offset: number, bytes: number, state: string, error: ServerError | null, findings: number[], cells: Cell[]};
type ScrollerOptions = {
  host: HTMLElement;  // the element that scrolls
  list: HTMLElement;  // holds the items; a grid
  render: (index: number) => HTMLElement;
  onRange: (start: number, end: number) => void;
};
/** A list of any length, of which only the items that are shown exist. */
type makeScroller = (options: ScrollerOptions) => {
  items: Map<number, HTMLElement>;  // those that exist
  resize: (total: number, rowHeight: number, columns: number) => void;
  refresh: () => void;  // renders all of them again
  replace: (index: number) => void;  // renders one again, if it exists
  scrollTo: (index: number) => void;  // puts its row at the top
  reveal: (index: number) => void;  // scrolls as little as is needed
  firstVisible: () => number;
  visibleRows: () => number;
  columns: () => number;
  shown: () => [number, number];
};
type Boxes = {boxes: number[][], labels?: number[] | null, names?: (string | null)[] | null};
type Overlay = {canvas: HTMLCanvasElement, feature: string, data: MaskData, counts: [number, number][], names: string[] | null, ignore: number | null};
type Reading = {x: number, y: number, ids: {feature: string, id: number, name: string | null}[]};
type StageOptions = {
  src: string;
  alt: string;
  width: number;  // as stored, like the height
  height: number;
  orientation?: number;
  zoom?: Zoom;
  onRead?: (reading: Reading | null) => void;
  until?: AbortSignal;
};
/** How far and where stages are zoomed in; x and y are the point at the centre, as fractions. */
type Zoom = {scale: number, x: number, y: number, listeners: (() => void)[], set: (scale: number, x?: number, y?: number) => void};
type makeZoom = () => Zoom;
/** An image that is zoomed and read by pointer and keyboard, with its masks and boxes on top. */
type makeStage = (options: StageOptions) => {
  element: HTMLElement;
  masks: Overlay[];
  hiddenIds: Set<number>;
  addMask: (feature: string, stored: MaskData, names: string[] | null, ignore: number | null) => void;
  addBoxes: (boxes: Boxes, classes: string[] | null) => void;
  toggleId: (id: number) => void;
};
type Filter = {
  feature: string;
  values?: string[];  // the classes or values that are kept
  range?: [number, number];  // from (included) to (excluded, or included for the last bin)
};
type State = {
  view: string;
  split: string | null;
  record: number | null;
  where: string;  // SQL
  filters: Filter[];
  sort: string;
  at: number;  // the first record shown
  more: Record<string, string>;  // what one view keeps for itself
};

type Rows = {
  total: number;
  complete: boolean;
  isLoaded: boolean;
  columns: string[];
  isLoading: () => boolean;
  at: (index: number) => Row | undefined;
  cell: (row: Row, column: string | null) => Cell | null;
  load: (index: number) => Promise<void>;  // the page of a row
  want: (start: number, end: number) => void;  // fetches what is missing of a range, and gives up what was asked for elsewhere
  fetchAgain: (start: number, end: number) => void;  // rows that have changed
  grow: (total: number, complete: boolean) => void;  // more records were found since
};
type makeRows = (until: AbortSignal, listeners: RowListeners) => Rows;
type RowListeners = {onPage: (first: number, end: number) => void, onTotal: () => void, onError: (error: unknown) => void};

// The functions of the modules: their types are here, so that the page does not load them.
// api.js
type findColumn = (name: string | undefined | null) => Column | null;
/** The records that the page shows: split, filters, SQL, order. */
type recordSet = () => Query;
/** What names one record of the side that is shown. */
type recordQuery = (split: string, record: number) => {side: number, split: string, record: number};
type address = (path: string, query?: Query) => string;
/** The address of a medium, which the browser may keep. */
type mediaAddress = (path: string, query: Query) => string;
type get = (path: string, query?: Query, signal?: AbortSignal) => Promise<any>;
type post = (path: string, body: object, signal?: AbortSignal) => Promise<any>;
type getBytes = (path: string, query: Query, signal?: AbortSignal) => Promise<ArrayBuffer>;
/** The class ids of a mask. */
type getMask = (query: Query, signal?: AbortSignal) => Promise<MaskData>;
// curation.js
/** The bar below the page while records are selected. */
type mountSelectionBar = (host: HTMLElement) => void;
/** A dialog; Esc closes it, and the focus returns. */
type openDialog = (title: string, ...children: Node[]) => HTMLDialogElement;
// dom.js
/** A name that may break after its separators. */
type breakable = (name: string, title?: string | null) => HTMLElement;
/** The same for text of several lines. */
type printableLines = (text: string) => string;
type hasModifier = (event: KeyboardEvent | MouseEvent) => boolean;
/** A part of the page that the server has rendered. */
type part = (id: string) => HTMLElement;
/** A function that runs once per frame at most, with its last arguments. */
type onceAFrame = <A extends any[]>(run: (...args: A) => void) => (...args: A) => void;
type onResize = (element: Element, run: () => void, until: AbortSignal) => void;
/** A value, or the nearest limit. */
type clamp = (value: number, low: number, high: number) => number;
/** An SVG element. */
type svg = (tag: string, props?: Props, ...children: (Child | Child[])[]) => SVGElement;
/** Listeners, and what calls them. */
type makeEvent = () => AnEvent<any[]>;
/** The children of an element, replaced. */
type show = (element: Element, ...children: (Child | Child[])[]) => void;
/** Text of a record as one line that cannot reorder or hide what is around it: unprintable characters as escapes. */
type printable = (text: unknown, limit?: number) => string;
/** Such text in a direction of its own. */
type bdi = (text: unknown, limit?: number, props?: Props) => HTMLElement;
type plural = (n: number, noun: string, several?: string) => string;
// facets.js
/** The panel of facets. */
type mountFacets = (host: HTMLElement, until: AbortSignal) => {reload: () => Promise<void>};
// findings.js
/** Two records next to each other; their images zoom together. */
type mountTwins = (host: HTMLElement, twins: ({ key: RecordKey; side: number } | null)[], until: AbortSignal, differing: string[]) => Promise<void>;
// gallery.js
/** The image feature of the tiles. */
type imageColumn = () => Column | null;
/** A view over all records that are shown: as tiles or as rows of a table. */
type mountRecords = (host: HTMLElement, until: AbortSignal, kind: "gallery" | "table") => View;
type mountHex = (query: Query, until: AbortSignal) => HTMLElement;
// keys.js
type openJump = (view: View | null) => void;
type mountKeys = (view: () => View | null, focusQuery: () => void, views: string[]) => void;
// images.js
/** The colour of a class id, for CSS. */
type classColour = (id: number) => string;
/** The name of the pattern of a class id. */
type patternName = (id: number) => string;
/** Draw the class ids of a mask. Opacity is a matter of CSS, so that changing it draws nothing again. */
type drawMask = (canvas: HTMLCanvasElement, { ids, width, height }: MaskData, { ignore, hidden, patterns }?: { ignore?: number | null; hidden?: ReadonlySet<number>; patterns?: boolean }) => void;
/** What is at an upright pixel. */
type readPixel = (pixel: [number, number] | null) => Reading | null;
/** A swatch of a legend: the colour and the pattern of a class. */
type makeSwatch = (id: number, patterns: boolean, ignore?: number | null) => HTMLCanvasElement;
/** The ids of a mask and their numbers of pixels, most first. */
type countIds = ({ ids }: MaskData) => [number, number][];
/** The pixel of an image below a point of an element that shows it with `object-fit: contain`. */
type pixelAt = (element: Element, width: number, height: number, { clientX, clientY }: { clientX: number; clientY: number }) => [number, number] | null;
// media.js
/** A player and the waveform, which seeks. */
type mountAudio = (query: Query, feature: Feature, until: AbortSignal) => HTMLElement;
/** The browser's player, or frames that the server decodes. */
type mountVideo = (query: Query, feature: Feature, until: AbortSignal) => HTMLElement;
/** A slice of a tensor as a heat map, with a table of its numbers. */
type mountTensor = (query: Query, feature: Feature, until: AbortSignal) => HTMLElement;
type uprightSize = (orientation: number, width: number, height: number) => [number, number];
/** The stored pixel that is shown at an upright one. */
type storedPixel = (orientation: number, width: number, height: number, x: number, y: number) => [number, number];
/** A box in fractions of the stored image [ymin, xmin, ymax, xmax], as left, top, width and height of the upright one. */
type uprightBox = (orientation: number, [ymin, xmin, ymax, xmax]: number[]) => { left: number; top: number; width: number; height: number };
/** A mask turned upright. */
type uprightMask = (mask: MaskData, orientation: number) => MaskData;
// parts.js
/** The state of a record that is not simply fine. */
type stateBadge = (state: string) => HTMLElement | null;
/** How many findings a record has. */
type findingBadge = (findings?: number[]) => HTMLElement | null | undefined;
/** The colour of a class. */
type classDot = (code: number | string) => HTMLElement;
/** What to do, with a button that copies it. */
type doLine = (text?: string | null) => HTMLElement | null;
type makePager = (label: string, first: number, previous: number, next: number, total: number, text: string, turn: (first: number) => void) => HTMLElement;
type makeFigure = (name: string, words: unknown[], style: string, ...children: (Child | Child[])[]) => HTMLElement;
/** The name of a feature, and what it is. */
type makeCaption = (name: string, words: unknown[]) => HTMLElement;
/** A table that is made when it is opened. */
type foldedTable = (caption: string, heads: string[], rows: () => (string | number)[][]) => HTMLElement;
/** Links to the kinds of something. */
type makeSubtabs = (label: string, tabs: any[][]) => HTMLElement;
type makeRange = (label: string, min: number, max: number, step: number, value: number, props: Props) => HTMLInputElement;
type makeSelect = (names: string[], value: string, onchange: (value: string) => void, props?: Props) => HTMLSelectElement;
/** A form of the page's templates, and its controls by name. */
type cloneForm = (id: string, submit: () => unknown) => [HTMLFormElement, Record<string, any>];
/** Those of some facts that are known. */
type listFacts = (facts: Record<string, unknown>) => HTMLElement | null;
/** The box that selects a record. */
type selectBox = (split: string, record: number, props?: Props) => HTMLInputElement;
/** What the URL keeps of a side. */
type sideMore = (side: number) => Record<string, string>;
/** A view below its heading. */
type mountTitled = (host: HTMLElement, title: string, ...children: Child[]) => View;
/** What an answer becomes, or why there is none. */
type showAnswer = (host: HTMLElement, until: AbortSignal, request: Promise<any>, draw: (answer: any) => void, title?: string) => Promise<void>;
/** A part that scrolls by itself, also by keyboard. */
type makeScrollable = (label: string, child: Child, style?: string) => HTMLElement;
/** The options of a select, or of a data list. */
type makeOptions = (names: string[]) => HTMLElement[];
/** Pairs of records, and the one that is chosen. */
type makePairList = (items: (Child | Child[])[], chosen: number, first: number, total: number, twins: HTMLElement) => HTMLElement;
/** The link to a record. */
type recordLink = (split: string, record: number, text?: string | null, side?: number) => HTMLAnchorElement;
/** An error of the server: what happened, and what to do. */
type errorPanel = (error: unknown, title?: string) => HTMLDivElement;
type faultPanel = (told: ServerError, title?: string) => HTMLDivElement;
type copyButton = (text: string, label?: string) => HTMLButtonElement;
/** Nothing is to be seen: a template says why. */
type emptyState = (id: string, child?: Child) => HTMLElement;
/** The content of a template of the page. */
type clone = (id: string) => any;
/** A table of which the parts are given. */
type makeTable = (caption: string, heads: (string | Node)[], rows: (Child | number | Child[])[][], style?: string) => HTMLTableElement;
/** Buttons to earlier and later parts of a long list. */
type pager = (first: number, size: number, total: number, more?: Record<string, string>) => HTMLElement | null;
// preferences.js
/** What the browser keeps. */
type recall = (storage: () => Storage, key: string, otherwise: any) => any;
type keep = (storage: () => Storage, key: string, value: unknown) => void;
type setPreference = <K extends keyof Preferences>(name: K, value: Preferences[K]) => void;
// record.js
/** Switches of the overlays. */
type overlayTools = (overlays: Side["overlays"], until: AbortSignal) => HTMLDivElement | null;
// selection.js
/** The selected records of the side that is shown, in order. */
type selectedRecords = () => RecordKey[];
type select = (split: string, record: number, on?: boolean) => boolean;
type selectMany = (records: RecordKey[], on: boolean) => void;
/** Boxes with the names of their classes, placed in fractions of the upright image. */
type makeBoxes = ({ boxes, labels, names }: Boxes, orientation: number, classes: string[] | null) => HTMLElement[];
// state.js
/** The state that shows the records of a finding, a cell or a tag. */
type setState = (more: Record<string, string>) => Partial<State>;
type parseState = (search: string) => State;
/** Show something else. A step that Back should return to is pushed; scrolling is not. */
type go = (change: Partial<State>, { replace, quiet }?: { replace?: boolean; quiet?: boolean }) => void;
/** The state that leaves a record, for the view it was opened from. */
type leaveRecord = (isNarrowed: boolean) => Partial<State>;
/** The link to a changed state. */
type link = (change: Partial<State>) => string;
/** The link to a change of what one view keeps for itself. */
type linkMore = (change: Record<string, string>) => string;
type goMore = (change: Record<string, string>, how?: { replace?: boolean; quiet?: boolean }) => void;
/** The state that opens one record. */
type recordState = (split: string, record: number) => Partial<State>;
