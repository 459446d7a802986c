#include "text/tokenizer/script.h"

#include <string>
#include <utility>

#include "text/tokenizer/unicode_versions.h"

namespace tessera {
namespace {

constexpr std::string_view kScripts[] = {"Common",
                                         "Latin",
                                         "Cyrillic",
                                         "Greek",
                                         "Inherited",
                                         "Arabic",
                                         "Hebrew",
                                         "Hangul",
                                         "Devanagari",
                                         "Thai",
                                         "Bengali",
                                         "Tamil",
                                         "Telugu",
                                         "Kannada",
                                         "Malayalam",
                                         "Gujarati",
                                         "Gurmukhi",
                                         "Oriya",
                                         "Sinhala",
                                         "Armenian",
                                         "Georgian",
                                         "Ethiopic",
                                         "Khmer",
                                         "Lao",
                                         "Myanmar",
                                         "Tibetan",
                                         "Mongolian",
                                         "Bopomofo",
                                         "Yi",
                                         "Syriac",
                                         "Thaana",
                                         "Cherokee",
                                         "Canadian_Aboriginal",
                                         "Ogham",
                                         "Runic",
                                         "Old_Italic",
                                         "Gothic",
                                         "Deseret",
                                         "Tagalog",
                                         "Hanunoo",
                                         "Buhid",
                                         "Tagbanwa",
                                         "Limbu",
                                         "Tai_Le",
                                         "Linear_B",
                                         "Ugaritic",
                                         "Shavian",
                                         "Osmanya",
                                         "Cypriot",
                                         "Braille",
                                         "Buginese",
                                         "Coptic",
                                         "New_Tai_Lue",
                                         "Glagolitic",
                                         "Tifinagh",
                                         "Syloti_Nagri",
                                         "Old_Persian",
                                         "Kharoshthi",
                                         "Balinese",
                                         "Cuneiform",
                                         "Phoenician",
                                         "Phags_Pa",
                                         "Nko",
                                         "Sundanese",
                                         "Lepcha",
                                         "Ol_Chiki",
                                         "Vai",
                                         "Saurashtra",
                                         "Kayah_Li",
                                         "Rejang",
                                         "Lycian",
                                         "Carian",
                                         "Lydian",
                                         "Cham",
                                         "Tai_Tham",
                                         "Tai_Viet",
                                         "Avestan",
                                         "Egyptian_Hieroglyphs",
                                         "Samaritan",
                                         "Lisu",
                                         "Bamum",
                                         "Javanese",
                                         "Meetei_Mayek",
                                         "Imperial_Aramaic",
                                         "Old_South_Arabian",
                                         "Inscriptional_Parthian",
                                         "Inscriptional_Pahlavi",
                                         "Old_Turkic",
                                         "Kaithi",
                                         "Batak",
                                         "Brahmi",
                                         "Mandaic",
                                         "Chakma",
                                         "Meroitic_Cursive",
                                         "Meroitic_Hieroglyphs",
                                         "Miao",
                                         "Sharada",
                                         "Sora_Sompeng",
                                         "Takri",
                                         "Caucasian_Albanian",
                                         "Bassa_Vah",
                                         "Duployan",
                                         "Elbasan",
                                         "Grantha",
                                         "Pahawh_Hmong",
                                         "Khojki",
                                         "Linear_A",
                                         "Mahajani",
                                         "Manichaean",
                                         "Mende_Kikakui",
                                         "Modi",
                                         "Mro",
                                         "Old_North_Arabian",
                                         "Nabataean",
                                         "Palmyrene",
                                         "Pau_Cin_Hau",
                                         "Old_Permic",
                                         "Psalter_Pahlavi",
                                         "Siddham",
                                         "Khudawadi",
                                         "Tirhuta",
                                         "Warang_Citi",
                                         "Ahom",
                                         "Anatolian_Hieroglyphs",
                                         "Hatran",
                                         "Multani",
                                         "Old_Hungarian",
                                         "SignWriting",
                                         "Adlam",
                                         "Bhaiksuki",
                                         "Marchen",
                                         "Newa",
                                         "Osage",
                                         "Tangut"};
constexpr int kCommon = 1, kDevanagari = 9;  // their positions above, from 1
constexpr int kHan = 1000;

}  // namespace

Result<ScriptFinder> ScriptFinder::create() {
  std::string alternatives;
  for (std::string_view script : kScripts) {
    if (!alternatives.empty()) alternatives += '|';
    alternatives.append("(\\p{sc:").append(script).append("})");
  }
  alternatives += "|(?:\\p{sc:Han}|\\p{sc:Hiragana}|\\p{sc:Katakana})";
  TSR_ASSIGN_OR_RETURN(Pattern pattern, Pattern::create(alternatives));
  return ScriptFinder(std::move(pattern));
}

int ScriptFinder::find(std::string_view character, int32_t code) const {
  if (code == 0x30fc) return kHan;
  if (code == ' ' || is_after_unicode_9(code) || known_character(code) != code) return -1;
  // As in that version.
  if (code == 0x953 || code == 0x954) return kDevanagari;
  if (code == 0x589 || code == 0x61c) return kCommon;
  PatternSearch search(pattern_, character);
  if (!search.next()) return -1;
  return search.group() == 0 ? kHan : search.group();
}

}  // namespace tessera
