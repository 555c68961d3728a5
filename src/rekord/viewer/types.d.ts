// What the modules of the page share: JSON of the server, and what they hand to each other. For the type checker.

type ServerError = {error: string, code: string | null, what: string, location?: Record<string, any>, expected?: string, found?: string, likely?: string, do?: string};
type SplitFacts = {name: string, files: number, bytes: number};
type Status = {busy: boolean, sides: {schema_pending: boolean, splits: SplitStatus[]}[], check: {state: string, files: number, of: number, findings: number, errors: number, warnings: number}};
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
  limits: {record_bytes: number, pixels: number, tiles: number, page: number, findings: number};
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
type Child = Node | string | number | null | undefined | false;
type Props = Record<string, any>;
type Facets = {complete: boolean, records: number, of: number | null, selected: number, sql: string | null, facets: Facet[], error: any};
type Cube = {active: string, bins: number, cubes: Record<string, {bins: number, cumulative: number[]}>, totals: number[]};
type Chart = {element: HTMLElement, draw: (selected: number[]) => void};
type Brush = {prepare: (column: string) => Promise<void>, move: (column: string, first: number, end: number) => void, commit: (column: string, range: [number, number] | null) => void};
type Facet = {
  column: string;
  type: string;
  names: string[];
  codes: (number | string)[];
  colours: string[] | null;
  edges: number[];
  integer: boolean;
  counts: number[];
  selected: number[];
  missing: number;
  other: number;
};
type RecordKey = [string, number];
type View = {focus: () => void, current: () => {split: string, record: number} | null, jump: (index: number) => void, total: () => number | null, step?: (direction: 1 | -1) => void};
type Mount = (host: HTMLElement, until: AbortSignal) => View | null;
type Ids = Uint8Array | Uint16Array | Int32Array;
type MaskData = {ids: Ids, width: number, height: number};
type Batch = {px: number, first: number, count: number, view: DataView, pixels: Uint8Array};
type Line = {top: number, label: string | null, code: number, tiles: number[]};
type Preferences = {theme: "auto" | "light" | "dark", masks: boolean, boxes: boolean, opacity: number, patterns: boolean, keys: boolean, tile: number};
type Feature = Column & {stored: string | null, count: number, bytes: number, shape: number[] | null, dtype: string | null, value: any, error: ServerError | null};
type ImageFacts = {format: string, width: number, height: number, orientation: number, state: string};
type Cell = {text: string, image?: ImageFacts, code?: number, value?: number | string, count?: number, missing?: boolean, boxes?: number[][], labels?: number[], names?: string[]};
type Row = {record: number, split: string, file: string, file_record: number, offset: number, bytes: number, state: string, error: ServerError | null, findings: number[], cells: Cell[]};
type ScrollerOptions = {
  host: HTMLElement;  // the element that scrolls
  list: HTMLElement;  // holds the items; a grid
  render: (index: number) => HTMLElement;
  onRange?: (start: number, end: number) => void;
};
type Boxes = {boxes: number[][], labels?: number[] | null, names?: (string | null)[] | null};
type Overlay = {feature: string, data: MaskData, names: string[] | null, ignore: number | null};
type Reading = {x: number, y: number, marks: string[], ids: {feature: string, id: number, name: string | null}[]};
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
